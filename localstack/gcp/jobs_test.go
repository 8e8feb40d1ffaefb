package emulators

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/api/option"

	"rollout/localstack/gcp/fakerun"
	"rollout/shared/fault"
	"rollout/shared/gcp"
	"rollout/shared/host"
	"rollout/shared/memory"
	"rollout/shared/record"
)

// jobsFixture is a pool whose machines are tasks of Cloud Run, in a world whose clock the
// test moves.
type jobsFixture struct {
	*testing.T
	run   *fakerun.Server
	fleet *gcp.Jobs
	docs  *memory.Documents

	mu  sync.Mutex
	now time.Time
}

// Now returns the fixture's time; see clock.Clock.
func (f *jobsFixture) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *jobsFixture) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = f.now.Add(d)
}

const jobName = "projects/acme-ml/locations/us-central1/jobs/rollout-small"

func newJobsFixture(t *testing.T) *jobsFixture {
	t.Helper()
	f := &jobsFixture{T: t, now: time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC), docs: memory.NewDocuments()}
	run, end, err := fakerun.Start(fakerun.Options{Now: f.Now}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
	run.MakeJob(jobName)
	f.run = run
	f.fleet, err = gcp.NewJobs(t.Context(), gcp.Config{Project: "acme-ml"}, gcp.JobOptions{
		Docs: f.docs, Clock: f, Log: slog.New(slog.DiscardHandler), Max: 4,
		Name: func(pool string) string { return strings.Replace(jobName, "small", pool, 1) },
	}, option.WithHTTPClient(run.Client()))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// raise asks for machines, and returns the error.
func (f *jobsFixture) raise(machines int) error {
	return f.fleet.ScaleUp(f.Context(), "small", machines)
}

// mustRaise asks for machines, which must not fail.
func (f *jobsFixture) mustRaise(machines int) {
	f.Helper()
	if err := f.raise(machines); err != nil {
		f.Error(err)
	}
}

// wantTasks checks how many tasks are in a state.
func (f *jobsFixture) wantTasks(state string, n int) {
	f.Helper()
	if got := f.run.Tasks()[state]; got != n {
		f.Errorf("%d tasks are %s, want %d", got, state, n)
	}
}

// wantAbsent checks a part of what people are told of the pool.
func (f *jobsFixture) wantAbsent(part string) {
	f.Helper()
	var told record.Fleet
	if _, _, err := host.Load(f.Context(), f.docs, record.FleetKey("small"), &told); err != nil {
		f.Error(err)
	}
	if !strings.Contains(told.Absent, part) {
		f.Errorf("people are told %q, want %q", told.Absent, part)
	}
}

func TestJobsRunTheMissingTasks(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t)
	f.mustRaise(2)
	f.wantTasks("running", 2)
	f.mustRaise(2) // at once: they are counted
	f.pass(time.Hour)
	f.mustRaise(1)
	f.wantTasks("running", 2)
	f.mustRaise(3)
	f.wantTasks("running", 3)
	f.mustRaise(99) // the pool has four at most
	f.wantTasks("running", 4)
	f.run.End("")
	f.pass(time.Minute)
	f.mustRaise(1)
	f.wantTasks("running", 1)
	if err := f.fleet.ScaleUp(t.Context(), "other", 1); !fault.Is(err, fault.NotFound) {
		t.Errorf("a pool without a job: %v", err)
	}
}

// Tasks that wait for a machine count: asking again starts no others.
func TestJobsCountWaitingTasks(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t)
	f.run.SetCapacity(1, "Waiting for GPUs.")
	f.mustRaise(3)
	for range 30 {
		f.pass(time.Minute)
		f.mustRaise(3)
	}
	f.wantTasks("running", 1)
	f.wantTasks("waiting", 2)
	f.wantTold(3, 1)
	if n := f.run.Requests()["run"]; n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
}

// wantTold fails the test unless people are told so many tasks that shall run and that do.
func (f *jobsFixture) wantTold(desired, present int) {
	f.Helper()
	var got record.Fleet
	if _, _, err := host.Load(f.Context(), f.docs, record.FleetKey("small"), &got); err != nil {
		f.Error(err)
	}
	if got.Desired != desired || got.Present != present {
		f.Errorf("people are told %+v, want %d tasks of %d", got, present, desired)
	}
}

// Of any number of raises at once, all together start what the largest asks for.
func TestRaisesAtOnceStartNoMoreThanNeeded(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t)
	for round := range 5 {
		var all sync.WaitGroup
		for n := range 16 {
			all.Go(func() {
				if err := f.raise(1 + n%3); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		f.mustRaise(3)
		if got := f.run.Tasks()["running"]; got != 3 {
			t.Fatalf("round %d: %d tasks run, want 3", round, got)
		}
		f.run.End("")
		f.pass(3 * time.Minute)
	}
}

// A raise whose answer is lost may have started its tasks, so they count until they are
// listed.
func TestLostReplyStartsNoTaskTwice(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t)
	f.run.LoseReply()
	if err := f.raise(2); !fault.Is(err, fault.Unavailable) {
		t.Errorf("the raise ended with %v", err)
	}
	f.mustRaise(2)
	f.wantTasks("running", 2)
	f.pass(5 * time.Minute)
	f.mustRaise(2)
	f.mustRaise(3)
	f.wantTasks("running", 3)
}

// The pauses between tries grow to a quarter of an hour, so that a day without quota costs
// a hundred requests, and GPUs come a quarter of an hour after it was granted.
func TestQuotaOfZeroForADayThenGranted(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t)
	f.run.RefuseAll(&fakerun.NoQuota)
	for range 24 * 60 {
		if err := f.raise(2); err != nil && !strings.Contains(err.Error(), "do not have quota") {
			t.Fatal(err)
		}
		f.pass(time.Minute)
	}
	f.wantAbsent("You do not have quota for using GPUs")
	if n := f.run.Requests()["run"]; n < 24*4 || n > 110 {
		t.Errorf("%d tries in a day, want about 100", n)
	}
	f.run.RefuseAll(nil)
	for range 15 {
		f.pass(time.Minute)
		f.mustRaise(2)
	}
	f.wantTasks("running", 2)
	f.pass(time.Minute)
	f.run.End("")
	f.pass(time.Minute)
	f.mustRaise(1) // the row of failures has ended: no pause
	f.wantTasks("running", 1)
}

// An execution none of whose tasks starts is cancelled, so that it does not start when
// nothing waits any more, and another one is tried later.
func TestTaskThatNeverStarts(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t)
	f.run.SetCapacity(0, "Waiting for GPUs in us-central1.")
	f.mustRaise(2)
	told := false
	for range 60 {
		f.pass(time.Minute)
		if err := f.raise(2); err != nil {
			told = true
		}
	}
	if !told || f.run.Requests()["cancel"] < 2 {
		t.Errorf("told %t, %v", told, f.run.Requests())
	}
	f.wantAbsent("started within 15 minutes: Waiting for GPUs in us-central1.")
	f.run.SetCapacity(-1, "")
	for range 40 {
		f.pass(time.Minute)
		_ = f.raise(2) // it may tell of the one that was cancelled
	}
	f.wantTasks("running", 2)
}

// When nothing waits any more, executions that wait for a machine are cancelled, and tasks
// that work go on. A pool without tasks costs no request.
func TestWithdrawnTasks(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t)
	withdraw := func() {
		t.Helper()
		if err := f.fleet.Withdraw(t.Context(), "small"); err != nil {
			t.Error(err)
		}
	}
	withdraw() // no tasks were ever asked for
	if n := f.run.Requests()["list"]; n != 0 {
		t.Errorf("%d lists of a pool without tasks", n)
	}
	f.mustRaise(1)
	f.run.SetCapacity(1, "Waiting for GPUs.")
	f.pass(time.Minute)
	f.mustRaise(3)
	withdraw()
	f.wantTasks("running", 1)
	f.wantTasks("cancelled", 2)
	f.wantTold(1, 1)
	f.run.End("")
	f.pass(3 * time.Minute)
	withdraw()
	f.wantTold(0, 0)
	before := f.run.Requests()["list"]
	withdraw()
	if n := f.run.Requests()["list"] - before; n != 0 {
		t.Errorf("%d lists of a pool whose tasks have ended", n)
	}
	f.run.SetCapacity(-1, "")
	f.mustRaise(2)
	f.wantTasks("running", 2)
}

// Tasks that fail before they work are not started again and again: the pause grows.
func TestTasksThatFail(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t)
	const image = "The user-provided container failed to start: image not found."
	for range 120 {
		_ = f.raise(1) // it tells of the failure
		f.pass(30 * time.Second)
		f.run.End(image)
		f.pass(30 * time.Second)
	}
	f.wantAbsent(image)
	if n := f.run.Requests()["run"]; n < 5 || n > 12 {
		t.Errorf("%d runs in two hours, want a few", n)
	}
}

// What people cancel is no failure: work that waits starts tasks again.
func TestCancelledByPeople(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t)
	f.mustRaise(1)
	f.pass(time.Minute)
	f.run.CancelAll()
	f.pass(time.Minute)
	f.mustRaise(1)
	f.wantTasks("running", 1)
}

// A refusal is told in the service's words, with a remedy where one is known.
func TestRefusedRunTellsWhy(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t)
	f.run.Refuse(fakerun.Refusal{Status: 403, Code: "PERMISSION_DENIED",
		Message: "Permission 'run.jobs.runWithOverrides' denied on resource."})
	err := f.raise(1)
	if err == nil || !strings.Contains(err.Error(), "run.jobs.runWithOverrides") {
		t.Errorf("%v", err)
	}
	f.wantAbsent("Permission 'run.jobs.runWithOverrides' denied on resource.")
	f.wantTasks("running", 0)
}

// People are told of tasks that have ended also when no others can start: as that is found, and
// during the pause after it.
func TestTasksThatEndedAreNotToldDuringAPause(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t)
	f.mustRaise(2)
	f.mustRaise(2)
	f.wantTold(2, 2)
	f.run.RefuseAll(&fakerun.NoQuota)
	if err := f.raise(3); err == nil {
		t.Error("a raise without quota did not fail")
	}
	f.wantTold(2, 2)
	f.run.End("")
	f.mustRaise(3) // the pause goes on
	f.wantTold(0, 0)
	f.run.RefuseAll(nil)
	f.pass(3 * time.Minute)
	f.mustRaise(1)
	f.mustRaise(1)
	f.wantTold(1, 1)
	f.pass(time.Minute)
	f.run.End("The user-provided container failed to start.")
	if err := f.raise(1); err == nil {
		t.Error("a task that failed was not told")
	}
	f.wantTold(0, 0)
}

// A thousand executions of earlier days are not read each minute.
func TestOldExecutionsAreNotListed(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t)
	for range 300 {
		f.pass(time.Hour)
		f.mustRaise(1)
		f.run.End("")
	}
	before := f.run.Requests()["list"]
	f.pass(time.Hour)
	f.mustRaise(1)
	if n := f.run.Requests()["list"] - before; n != 1 {
		t.Errorf("%d pages were read, want 1", n)
	}
	f.wantTasks("running", 1)
}

// A raise whose context ends changes nothing that a later one minds.
func TestCanceledRaise(t *testing.T) {
	t.Parallel()
	f := newJobsFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.fleet.ScaleUp(ctx, "small", 1); !fault.Is(err, fault.Canceled) {
		t.Errorf("the raise ended with %v", err)
	}
	f.mustRaise(1)
	f.wantTasks("running", 1)
}
