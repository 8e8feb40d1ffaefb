package emulators

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/api/option"

	"rollout/localstack/gcp/fakecompute"
	"rollout/shared/capacity"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/gcp"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// fleetConfig has a pool with machines of two series.
const fleetConfig = `schema_version = 1
[cloud]
provider = "gcp"
project = "acme-ml"
region = "us-central1"
gcs.bucket = "acme-rollout"
fleet.instance_types = ["g2-standard-8", "g2-standard-12", "a2-highgpu-1g"]
[[pool]]
name = "small"
model = "m"
`

// Groups of fleetConfig.
const g2, a2 = "rollout-small-g2", "rollout-small-a2"

// plainly sends all requests to one host, without TLS.
type plainly string

func (host plainly) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.URL.Scheme = "http"
	return to(host).RoundTrip(r)
}

// settableClock is a clock that tests set.
type settableClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *settableClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *settableClock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// rented is an installation with a fleet on emulators. Its minutes pass when a test says
// so.
type rented struct {
	*gcp.Stack
	t       *testing.T
	compute *fakecompute.Server
	clock   *settableClock
	fleet   capacity.Fleet
}

// rent starts an installation whose fleet is empty. before and after are hooks of its
// Compute Engine; see fakecompute.Options.
func rent(t *testing.T, before, after func(*http.Request)) *rented {
	t.Helper()
	c := &settableClock{now: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)}
	compute := fakecompute.New(fakecompute.Options{Project: "acme-ml", Region: "us-central1", Now: c.Now, Before: before,
		After: after})
	compute.MakeGroup(g2, "us-central1-a", "us-central1-b")
	compute.MakeGroup(a2, "us-central1-a")
	address, end, err := compute.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	d, err := config.ParseDeployment("rollout.toml", []byte(fleetConfig))
	if err != nil {
		t.Fatal(err)
	}
	s, err := gcp.OpenStack(t.Context(), d, gcp.StackOptions{
		Options:  cloud.Options{Clock: c},
		Services: []option.ClientOption{option.WithHTTPClient(&http.Client{Transport: plainly(address)})},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Ports.Docs = hosttest.New().Docs
	return &rented{Stack: s, t: t, compute: compute, clock: c, fleet: s.Fleet()}
}

// scaleUp asks for so many machines of the pool, as functions do.
func (r *rented) scaleUp(machines int) {
	r.t.Helper()
	if err := r.fleet.ScaleUp(r.t.Context(), "small", machines); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rented) withdraw() {
	r.t.Helper()
	if err := r.fleet.(capacity.Withdrawer).Withdraw(r.t.Context(), "small"); err != nil {
		r.t.Fatal(err)
	}
}

// minutes lets minutes pass in which so many machines are asked for.
func (r *rented) minutes(n, machines int) {
	r.t.Helper()
	for range n {
		r.scaleUp(machines)
		r.compute.Step()
		r.clock.pass(time.Minute)
	}
}

// want fails the test unless the groups have these sizes and so many machines exist.
func (r *rented) want(sizeG2, sizeA2, machines int) {
	r.t.Helper()
	if a, b, n := r.compute.Size(g2), r.compute.Size(a2), len(r.compute.Machines()); a != sizeG2 || b != sizeA2 ||
		n != machines {
		r.t.Errorf("the sizes are %d and %d with %d machines, want %d and %d with %d", a, b, n, sizeG2, sizeA2, machines)
	}
	if ended := r.compute.Lowered(); len(ended) > 0 {
		r.t.Errorf("lower sizes ended the machines %v", ended)
	}
}

// wantTold fails the test unless people are told that so many machines are asked for and
// exist, as `rollout status` shows it.
func (r *rented) wantTold(desired, present int) {
	r.t.Helper()
	if f := hosttest.Load[record.Fleet](r.t, r.Ports, record.FleetKey("small")); f.Desired != desired ||
		f.Present != present || f.SeenAt.IsZero() && desired > 0 {
		r.t.Errorf("people are told %+v, want %d machines of %d", f, present, desired)
	}
}

// reason returns why the pool gets no machines, as `rollout explain` tells it.
func (r *rented) reason() string {
	r.t.Helper()
	return hosttest.Load[record.Fleet](r.t, r.Ports, record.FleetKey("small")).Absent
}

// The machines that are asked for and those that exist are told, until the last one has left.
func TestNumberOfMachinesIsTold(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	r := rent(t, func(*http.Request) { requests.Add(1) }, nil)
	r.compute.SetStock(g2, 2)
	r.scaleUp(3)
	r.wantTold(3, 0)
	r.compute.Step()
	r.scaleUp(3)
	r.wantTold(3, 2)
	r.withdraw()
	r.compute.Step()
	r.withdraw()
	r.wantTold(2, 2)
	for _, m := range r.compute.Machines() {
		if err := r.Machines().Remove(t.Context(), m.ID, m.Name); err != nil {
			t.Fatal(err)
		}
	}
	r.compute.Step()
	r.withdraw()
	r.wantTold(0, 0)
	before := requests.Load()
	r.withdraw()
	if n := requests.Load() - before; n > 0 {
		t.Errorf("%d requests of a pool without machines", n)
	}
}

func TestMachinesComeOfTheFirstSeries(t *testing.T) {
	t.Parallel()
	r := rent(t, nil, nil)
	r.compute.LoseReplies(1) // a repeated resize is the same resize
	r.minutes(3, 3)
	r.want(3, 0, 3)
	r.minutes(3, 1) // machines leave by themselves
	r.want(3, 0, 3)
	r.minutes(1, 4)
	r.want(4, 0, 4)
	r.withdraw()
	r.want(4, 0, 4)
}

// A project has no quota for a day. Then it is granted, and machines come within a
// quarter of an hour. Meanwhile requests become rare, and the reason is told.
func TestNoQuotaForADay(t *testing.T) {
	t.Parallel()
	r := rent(t, nil, nil)
	r.compute.SetQuota(0)
	r.minutes(24*60, 2)
	if n := len(r.compute.Machines()); n > 0 || r.compute.Size(g2)+r.compute.Size(a2) > 2 {
		t.Errorf("%d machines, sizes %d and %d", n, r.compute.Size(g2), r.compute.Size(a2))
	}
	if n := r.compute.Resizes(); n > 250 {
		t.Errorf("groups were resized %d times in a day", n)
	}
	if why := r.reason(); !strings.Contains(why, "quota") || !strings.Contains(why, "Quota 'GPUS_ALL_REGIONS' exceeded") {
		t.Errorf("the reason is %q", why)
	}
	at := hosttest.Load[record.Fleet](t, r.Ports, record.FleetKey("small")).AbsentAt
	if age := r.clock.Now().Sub(at); age > 30*time.Minute {
		t.Errorf("the reason is %s old: it is told for half an hour", age)
	}
	r.compute.SetQuota(-1)
	r.minutes(16, 2)
	if n := len(r.compute.Machines()); n != 2 || r.compute.Size(g2)+r.compute.Size(a2) != 2 {
		t.Errorf("%d machines, sizes %d and %d, want 2", n, r.compute.Size(g2), r.compute.Size(a2))
	}
}

// No series has machines. Both are tried in turn, one at a time, until the work is gone:
// then nothing comes any more, also when there are machines again.
func TestStockoutEverywhereIsGivenUpWithTheWork(t *testing.T) {
	t.Parallel()
	r := rent(t, nil, nil)
	r.compute.SetStock(g2, 0)
	r.compute.SetStock(a2, 0)
	for range 60 {
		r.minutes(1, 3)
		if both := r.compute.Size(g2) + r.compute.Size(a2); both > 3 {
			t.Fatalf("3 machines are needed, and %d asked for", both)
		}
	}
	if why := r.reason(); !strings.Contains(why, "Google has no such machine free: ZONE_RESOURCE_POOL_EXHAUSTED") {
		t.Errorf("the reason is %q", why)
	}
	r.withdraw()
	r.compute.SetStock(g2, -1)
	r.compute.SetStock(a2, -1)
	r.compute.Step()
	r.want(0, 0, 0)
	r.minutes(10, 3) // new work
	if n := len(r.compute.Machines()); n != 3 {
		t.Errorf("%d machines, want 3", n)
	}
}

func TestNextSeriesIsAskedWhenOneIsDry(t *testing.T) {
	t.Parallel()
	r := rent(t, nil, nil)
	r.compute.SetStock(g2, 1)
	r.minutes(6, 3)
	r.want(1, 2, 3)
	r.compute.SetStock(g2, -1)
	r.minutes(10, 3)
	r.want(1, 2, 3) // what the first series has by now is not needed
	r.minutes(1, 4)
	r.want(2, 2, 4)
}

func TestWrongImageIsTold(t *testing.T) {
	t.Parallel()
	r := rent(t, nil, nil)
	r.compute.SetImage(g2, false)
	r.compute.SetImage(a2, false)
	r.minutes(30, 1)
	why := r.reason()
	if !strings.Contains(why, "template") || !strings.Contains(why, "images/family/absent' was not found") {
		t.Errorf("the reason is %q", why)
	}
	if n := r.compute.Resizes(); n > 15 {
		t.Errorf("groups were resized %d times in half an hour", n)
	}
	r.compute.SetImage(g2, true) // a new deployment
	r.minutes(16, 1)
	if n := len(r.compute.Machines()); n != 1 {
		t.Errorf("%d machines, want 1", n)
	}
}

func TestRefusingPolicyIsTold(t *testing.T) {
	t.Parallel()
	r := rent(t, nil, nil)
	r.compute.Refuse(true)
	r.minutes(3, 1)
	why := r.reason()
	if !strings.Contains(why, "policy") || !strings.Contains(why, "constraints/compute.vmExternalIpAccess") {
		t.Errorf("the reason is %q", why)
	}
}

// A preempted machine comes back under its name as another machine. Its old id can't
// remove it.
func TestSameNameIsAnotherMachine(t *testing.T) {
	t.Parallel()
	r := rent(t, nil, nil)
	r.minutes(1, 1)
	old := r.compute.Machines()[0]
	r.compute.Preempt(old.ID)
	r.compute.Step()
	again := r.compute.Machines()[0]
	if again.Name != old.Name || again.ID == old.ID {
		t.Fatalf("%+v came back as %+v", old, again)
	}
	if err := r.Machines().Remove(t.Context(), old.ID, old.Name); !fault.Is(err, fault.NotFound) {
		t.Errorf("the old machine leaves: %v", err)
	}
	r.compute.Step()
	r.want(1, 0, 1)
	for range 2 { // a repeated request changes nothing
		if err := r.Machines().Remove(t.Context(), again.ID, again.Name); err != nil {
			t.Errorf("the new machine leaves: %v", err)
		}
	}
	r.compute.Step()
	r.want(0, 0, 0)
}

// A machine leaves alone: the others go on, and no other takes its place.
func TestMachineLeavesAlone(t *testing.T) {
	t.Parallel()
	r := rent(t, nil, nil)
	r.minutes(2, 3)
	all := r.compute.Machines()
	if err := r.Machines().Remove(t.Context(), all[1].ID, all[1].Name); err != nil {
		t.Fatal(err)
	}
	r.compute.Step()
	r.withdraw()
	r.compute.Step()
	r.want(2, 0, 2)
	if left := r.compute.Machines(); left[0] != all[0] || left[1] != all[2] {
		t.Errorf("%v are left of %v", left, all)
	}
	for name, m := range map[string][2]string{
		"another's machine":    {all[0].ID, "web-server-x1c2"},
		"a machine of no name": {all[0].ID, ""},
		"an unknown id":        {"1", all[0].Name},
	} {
		if err := r.Machines().Remove(t.Context(), m[0], m[1]); !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.want(2, 0, 2)
}

// Requests that are not fulfilled are withdrawn while machines work, which go on.
func TestWithdrawalEndsNoMachine(t *testing.T) {
	t.Parallel()
	r := rent(t, nil, nil)
	r.compute.SetStock(g2, 2)
	r.minutes(1, 5)
	r.want(5, 0, 2)
	r.withdraw()
	r.compute.Step()
	r.want(2, 0, 2)
}

// Many functions scale up at once: no machine ends, and no more machines come than the
// largest request asked for.
func TestConcurrentRequestsEndNoMachine(t *testing.T) {
	t.Parallel()
	r := rent(t, nil, nil)
	r.minutes(2, 2)
	for round := range 10 {
		var all sync.WaitGroup
		for n := range 6 {
			fleet := r.Fleet() // of another process
			all.Go(func() {
				if err := fleet.ScaleUp(t.Context(), "small", 1+(n+round)%7); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		r.compute.Step()
		r.clock.pass(time.Minute)
	}
	if n := len(r.compute.Machines()); n < 2 || n > 7 {
		t.Errorf("%d machines, want 2 to 7", n)
	}
	if ended := r.compute.Lowered(); len(ended) > 0 {
		t.Errorf("lower sizes ended the machines %v", ended)
	}
}

// A function that was slow has lost the lock. It must not set the size that it computed
// then.
func TestSlowFunctionDoesNotLowerTheSize(t *testing.T) {
	t.Parallel()
	var reads atomic.Int32 // of the last group: without the lock, then with it
	arrived, proceed := make(chan struct{}), make(chan struct{})
	slow := func(q *http.Request) {
		last := strings.HasSuffix(q.URL.Path, a2) // of the groups that are read
		if last && reads.Add(1) == 2 {
			close(arrived)
			<-proceed
		}
	}
	r := rent(t, slow, nil)
	done := make(chan error)
	go func() { done <- r.Fleet().ScaleUp(t.Context(), "small", 1) }()
	<-arrived
	r.scaleUp(5) // does nothing: the lock is held
	r.want(0, 0, 0)
	r.clock.pass(3 * time.Minute)
	r.minutes(2, 5)
	close(proceed)
	if err := <-done; !fault.Is(err, fault.Unavailable) {
		t.Errorf("the slow function: %v, want Unavailable", err)
	}
	r.compute.Step()
	r.want(5, 0, 5)
}

// The answer to a resize does not come before its function is ended. The request may still
// be on its way, and would end working machines if another function had raised the size by
// then. The lock therefore stays until it expires, and no other function resizes meanwhile.
func TestResizeWithoutAnAnswerKeepsTheLock(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"carried out at once": false, "carried out late": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var blocks atomic.Bool // the next resize
			sent, done, proceed := make(chan struct{}), make(chan struct{}), make(chan struct{})
			before := func(q *http.Request) {
				if late && strings.HasSuffix(q.URL.Path, "/resize") && blocks.CompareAndSwap(true, false) {
					close(sent)
					<-proceed
				}
			}
			after := func(q *http.Request) {
				switch {
				case q.URL.Query().Get("size") != "4":
				case late:
					close(done)
				case blocks.CompareAndSwap(true, false):
					close(done)
					close(sent)
					<-proceed
				}
			}
			r := rent(t, before, after)
			r.minutes(2, 2)
			blocks.Store(true)
			ctx, end := context.WithCancel(t.Context())
			result := make(chan error)
			go func() { result <- r.Fleet().ScaleUp(ctx, "small", 4) }()
			<-sent
			end()
			if err := <-result; !fault.Is(err, fault.Canceled) {
				t.Errorf("the function that was ended: %v, want Canceled", err)
			}
			r.wantLocked()
			close(proceed)
			<-done
			r.compute.Step()
			r.want(4, 0, 4)
			r.wantLocked()
			r.clock.pass(time.Minute)
			r.minutes(1, 6)
			r.want(6, 0, 6)
		})
	}
}

// All answers to a resize are lost, those to its repetitions too. It is as uncertain as one
// that is still on its way.
func TestResizeWhoseAnswersAreLostKeepsTheLock(t *testing.T) {
	t.Parallel()
	r := rent(t, nil, nil)
	r.minutes(2, 2)
	r.compute.LoseReplies(3)
	if err := r.fleet.ScaleUp(t.Context(), "small", 4); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v, want Unavailable", err)
	}
	r.wantLocked()
	r.compute.Step()
	r.want(4, 0, 4)
	r.clock.pass(2 * time.Minute)
	r.minutes(1, 6)
	r.want(6, 0, 6)
}

// wantLocked lets other functions ask for more machines, and give requests up, during half
// a minute: none of them may resize a group.
func (r *rented) wantLocked() {
	r.t.Helper()
	resizes := r.compute.Resizes()
	for range 3 {
		r.fleet = r.Fleet() // of another process
		r.scaleUp(6)
		r.withdraw()
		r.clock.pass(10 * time.Second)
	}
	if n := r.compute.Resizes() - resizes; n > 0 {
		r.t.Errorf("%d resizes while the answer to one is unknown", n)
	}
}

// The groups are destroyed while machines work and others are asked for.
func TestDestroyWhileMachinesRun(t *testing.T) {
	t.Parallel()
	r := rent(t, nil, nil)
	r.compute.SetStock(g2, 1)
	r.minutes(1, 2)
	working := r.compute.Machines()[0]
	r.compute.DeleteGroup(g2)
	if err := r.Machines().Remove(t.Context(), working.ID, working.Name); !fault.Is(err, fault.NotFound) {
		t.Errorf("the machine leaves: %v", err)
	}
	r.minutes(1, 2) // the other series is still there
	r.withdraw()
	r.compute.DeleteGroup(a2)
	err := r.fleet.ScaleUp(t.Context(), "small", 2)
	if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), g2+", "+a2) {
		t.Errorf("without groups: %v", err)
	}
	r.withdraw()
}

// The lock of a function that ended in the middle expires.
func TestLockOfALostFunctionExpires(t *testing.T) {
	t.Parallel()
	lost, cancel := context.WithCancel(t.Context())
	r := rent(t, nil, nil)
	hosttest.Save(t, r.Ports, record.FleetKey("small")+"/groups",
		map[string]any{"schema": 1, "locked_until": r.clock.Now().Add(2 * time.Minute)})
	cancel()
	_ = r.fleet.ScaleUp(lost, "small", 1) // it can't even read
	r.scaleUp(1)
	r.want(0, 0, 0)
	r.clock.pass(2 * time.Minute)
	r.scaleUp(1)
	r.want(1, 0, 0)
}

func TestGroupsOfAPool(t *testing.T) {
	t.Parallel()
	d, err := config.ParseDeployment("rollout.toml", []byte(fleetConfig))
	if err != nil {
		t.Fatal(err)
	}
	if got := gcp.GroupNames(d, "small"); !slices.Equal(got, []string{g2, a2}) {
		t.Errorf("%v", got)
	}
	ultra := d
	ultra.Cloud.Fleet.InstanceTypes = []string{"a3-highgpu-8g", "a3-ultragpu-8g"}
	if got := gcp.GroupNames(ultra, "small"); !slices.Equal(got, []string{"rollout-small-a3", "rollout-small-a3ultra"}) {
		t.Errorf("%v: A3 Ultra has other disks", got)
	}
	if pool, ok := gcp.PoolOfGroup(d, a2); pool != "small" || !ok {
		t.Errorf("%s belongs to %q, %t", a2, pool, ok)
	}
	if pool, ok := gcp.PoolOfGroup(d, "rollout-small"); ok {
		t.Errorf("rollout-small belongs to %q", pool)
	}
}
