package reclaim

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rollout/events"
	"rollout/functions/notify"
	"rollout/shared/core/cost"
	"rollout/shared/core/health"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/scaling"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// inbox is a destination that keeps what it gets, unless it is away.
type inbox struct {
	mu   sync.Mutex
	away bool
	got  []string // subjects and types
	data []string
}

func (*inbox) Name() string { return "inbox" }

func (b *inbox) Deliver(_ context.Context, event []byte) error {
	e, _, err := events.Decode(event)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away {
		return fault.New(fault.Unavailable, "away")
	}
	b.got = append(b.got, e.Subject+" "+string(e.Type))
	b.data = append(b.data, string(e.Data))
	return err
}

// notifying returns a fixture whose reclaimer records events for an inbox.
func notifying(t *testing.T) (fixture, *inbox, *notify.Notifier) {
	t.Helper()
	d, to := newFixture(t), &inbox{}
	n := notify.New(d.Ports, notify.Options{Source: "rollout/local", Destinations: []notify.Destination{to},
		Timeout: time.Minute})
	d.NotifyWith(n)
	return d, to, n
}

func (d fixture) scanAndDeliver(n *notify.Notifier) {
	d.t.Helper()
	if err := d.Scan(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	if _, err := n.Deliver(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

func TestScanTellsOfPausesAndEnds(t *testing.T) {
	t.Parallel()
	d, to, n := notifying(t)
	d.running(id, time.Now(), func(s *run.State) {
		s.Phase, s.Message, s.StopRequestedAt = run.Paused, "the input is gone", time.Now()
	})
	d.scanAndDeliver(n)
	d.scanAndDeliver(n)
	d.running(id, time.Now(), func(s *run.State) { s.Phase, s.EndedAt = run.Completed, time.Now() })
	hosttest.Put(t, d.Ports, record.OutputKey(id, record.SummaryFile),
		`{"schema":1,"run_id":"`+string(id)+`","phase":"completed_with_errors","items":3,"completed":2,"failed":1}`)
	d.scanAndDeliver(n)
	want := []string{string(id) + " rollout.run.paused.v1", string(id) + " rollout.run.completed.v1"}
	if !slices.Equal(to.got, want) {
		t.Fatalf("told %q, want %q", to.got, want)
	}
	if !strings.Contains(to.data[0], "the input is gone") ||
		!strings.Contains(to.data[1], `"phase":"completed_with_errors"`) {
		t.Errorf("told %s", to.data)
	}
	if docs, err := d.Docs.List(t.Context(), record.EndedPrefix, record.RunIndexKey, 10); err != nil || len(docs) != 1 {
		t.Errorf("the index of ended runs has %d, %v", len(docs), err)
	}
}

// A run leaves the index of open runs though its event is not delivered.
func TestADeadDestinationHoldsNoRunUp(t *testing.T) {
	t.Parallel()
	d, to, n := notifying(t)
	to.away = true
	d.running(id, time.Now(), func(s *run.State) { s.Phase, s.EndedAt = run.Failed, time.Now() })
	d.scanAndDeliver(n)
	if _, err := d.Docs.Get(t.Context(), record.OpenRunKey(id)); !fault.Is(err, fault.NotFound) {
		t.Errorf("the run is still open: %v", err)
	}
	if docs, err := d.Docs.List(t.Context(), record.OutboxPrefix, "", 10); err != nil || len(docs) != 1 {
		t.Errorf("the outbox has %d entries, %v", len(docs), err)
	}
}

func TestScanTellsOfRefusedRuns(t *testing.T) {
	t.Parallel()
	d, to, n := notifying(t)
	m := inputtest.Manifest(1)
	m.Run, m.Refused = id, "x.jsonl is UTF-16"
	d.save(record.ManifestKey(id), m)
	d.addOpen(id)
	d.scanAndDeliver(n)
	if len(to.data) != 1 || !strings.Contains(to.data[0], "UTF-16") ||
		!strings.HasSuffix(to.got[0], "rollout.run.failed.v1") {
		t.Errorf("told %q: %s", to.got, to.data)
	}
}

func TestScanTellsOfFailedBootsOnce(t *testing.T) {
	t.Parallel()
	d, to, n := notifying(t)
	d.running(id, time.Now())
	at := time.Now()
	for _, worker := range []string{"i-1", "i-2"} {
		d.save(record.HeartbeatKey(worker), health.Heartbeat{Schema: 1, Worker: worker, Pool: "small", State: health.Gone,
			At: at, DueAt: at, Instance: worker, FailureReason: "the engine ended: no such model"})
		at = at.Add(time.Second)
		d.scanAndDeliver(n)
	}
	if !slices.Equal(to.got, []string{"pool/small rollout.pool.boot.failed.v1"}) ||
		!strings.Contains(to.data[0], "no such model") {
		t.Errorf("told %q: %s", to.got, to.data)
	}
}

// A worker processes untrusted prompts, and may write a heartbeat of any pool.
func TestFailedBootsOfUnknownPoolsAreNotTold(t *testing.T) {
	t.Parallel()
	d, to, n := notifying(t)
	d.running(id, time.Now())
	for worker, pool := range map[string]string{"i-1": "default", "i-2": "a pool/../x", "i-3": "other"} {
		d.save(record.HeartbeatKey(worker), health.Heartbeat{Schema: 1, Worker: worker, Pool: pool, State: health.Gone,
			At: time.Now(), DueAt: time.Now(), Instance: worker, FailureReason: "the engine ended"})
	}
	o := scheduled(nil)
	o.Notifier, o.LongestBoots = n, map[string]time.Duration{"default": 20 * time.Minute}
	if err := ScanOnce(t.Context(), d.Ports, o); err != nil {
		t.Error(err)
	}
	if _, err := n.Deliver(t.Context()); err != nil {
		t.Error(err)
	}
	if !slices.Equal(to.got, []string{"pool/default rollout.pool.boot.failed.v1"}) {
		t.Errorf("told %q", to.got)
	}
}

// A budget is told by what done shards and waiting ones have spent.
func TestScanTellsOfBudgetsThatAreNearlySpent(t *testing.T) {
	t.Parallel()
	d, to, n := notifying(t)
	m := inputtest.Manifest(1)
	m.Run, m.Config.Limits.Tokens, m.Config.Limits.Dollars = id, 1000, 1
	spend := func(tokens int64) {
		d.running(id, time.Now(), func(s *run.State) {
			s.Counts.PromptTokens, s.Counts.TokenNanoUSD = tokens, 900_000*(tokens-10)
			s.Allowances = run.Allowances{{Range: interval.Range{Lo: 0, Hi: 1}, Spend: cost.Spend{Tokens: 10}}}
			s.ControlMicroUSD = 1000
		})
		d.save(record.ManifestKey(id), m)
		d.scanAndDeliver(n)
	}
	spend(700)
	if len(to.got) != 0 {
		t.Fatalf("told %q at 70 %%", to.got)
	}
	spend(810)
	spend(910)
	spend(950)
	if len(to.got) != 2 || !strings.Contains(to.data[0], `"budget":"tokens","used":810,"limit":1000`) ||
		!strings.Contains(to.data[1], `"budget":"dollars","used":0.811,"limit":1`) {
		t.Errorf("told %q: %s", to.got, to.data)
	}
}

func TestScanTellsWhyTheCloudStartsNoMachines(t *testing.T) {
	t.Parallel()
	d, to := newFixture(t), &inbox{}
	n := notify.New(d.Ports, notify.Options{Source: "rollout/acme", Destinations: []notify.Destination{to},
		Fleets: []string{"none", "small", "large", "old"}, Timeout: time.Minute})
	d.NotifyWith(n)
	d.running(id, time.Now())
	absent := func(pool string, age time.Duration, kind scaling.ProblemKind) {
		d.save(record.FleetKey(pool), record.Fleet{Schema: 1, AbsentAt: time.Now().Add(-age), Absent: "none", Problem: kind})
	}
	absent("small", 2*time.Minute, scaling.Stockout)
	absent("large", time.Minute, scaling.Quota)
	absent("old", 2*time.Hour, scaling.Stockout)
	d.scanAndDeliver(n)
	absent("small", time.Minute, scaling.Stockout) // it lasts
	absent("large", 0, scaling.Unfit)              // another problem
	d.scanAndDeliver(n)
	slices.Sort(to.got)
	want := []string{"pool/large rollout.pool.launch.failed.v1", "pool/large rollout.pool.quota.reached.v1",
		"pool/small rollout.pool.capacity.missing.v1"}
	if !slices.Equal(to.got, want) {
		t.Errorf("told %q, want %q", to.got, want)
	}
}
