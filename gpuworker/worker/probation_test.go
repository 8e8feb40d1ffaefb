package worker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/worker"
	"rollout/shared/core/health"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// crashingEngine is an executor whose engine crashes on the given items, and says
// whether it worked on nothing else.
func crashingEngine(items ...int) *fakeExecutor {
	e := &fakeExecutor{}
	starts := 0
	e.answer = func(ctx context.Context, n int) error {
		if err := answerAfter(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		if !slices.Contains(items, n) {
			return nil
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		starts++
		return crashError{shard.Crash{EngineStart: string(rune('a' + starts)), Alone: e.inFlight == 1}}
	}
	return e
}

func inFlight(n int) func(*worker.Config) { return func(c *worker.Config) { c.InFlight = n } }

func TestSuspectIsAskedAloneAfterItIsNamedAndRowsAreSaved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 3, 10)
		d.sendWork(0, 1, 2)
		e := crashingEngine(4)
		answer, requests := e.answer, 0
		e.answer = func(ctx context.Context, n int) error {
			if doc := d.shard(0); n == 4 && doc.Suspects.Has(4) {
				requests++
				e.mu.Lock()
				if e.inFlight != 1 {
					t.Errorf("in probation request %d: %d requests in flight", requests, e.inFlight)
				}
				e.mu.Unlock()
				if !slices.Equal(doc.OnProbation, []int{4}) || doc.Checkpoint == nil || doc.Counts.OK != 9 {
					t.Errorf("in probation request %d the document is %+v", requests, doc)
				}
				if doc.Crashes[4].Alone != requests-1 {
					t.Errorf("before probation request %d the crashes are %v", requests, doc.Crashes)
				}
			}
			return answer(ctx, n)
		}
		d.start("w1", e, inFlight(6))
		advance(10 * time.Second)
		if requests != 2 {
			t.Errorf("%d probation requests, want 2", requests)
		}
		for n := range 3 {
			doc, poison := d.shard(n), 0
			if n == 0 {
				poison = 1
			}
			if doc.State != shard.Done || doc.Counts.OK != 10-poison ||
				doc.Counts.ByClass["poison"] != poison || doc.Suspects.Len() != 0 {
				t.Errorf("shard %d is %+v", n, doc)
			}
		}
	})
}

func TestNoRequestBeginsBeforeSuspectsAreWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 10)
		d.sendWork(0)
		e := crashingEngine(1)
		e.answer = func(ctx context.Context, n int) error {
			if n == 1 {
				return crashError{}
			}
			return answerAfter(ctx, time.Second)
		}
		d.stores.failWith(func(c call) error {
			if c.what == "write" && c.key != record.HeartbeatKey("w1") && len(e.askedItems()) > 0 {
				return fault.New(fault.Unavailable, "the store is down")
			}
			return nil
		})
		d.start("w1", e, inFlight(2))
		advance(5 * time.Second)
		if asked := e.askedItems(); !slices.Equal(asked, []int{0, 1}) {
			t.Errorf("asked %v while the suspect was not written", asked)
		}
		d.stores.failWith(nil)
		advance(3 * time.Second)
		if asked := e.askedItems(); len(asked) < 4 || !d.shard(0).Suspects.Has(1) {
			t.Errorf("asked %v, suspects %v", asked, d.shard(0).Suspects)
		}
	})
}

// probationCounter counts how many workers have probation requests at once.
type probationCounter struct {
	mu        sync.Mutex
	now, most int
	order     []string
}

// executor returns a worker's executor. Each item crashes its engine once, so that
// all items need a probation request, which takes a second.
func (a *probationCounter) executor(id string) *fakeExecutor {
	var mu sync.Mutex
	crashed := map[int]bool{}
	return &fakeExecutor{answer: func(ctx context.Context, n int) error {
		mu.Lock()
		first := !crashed[n]
		crashed[n] = true
		mu.Unlock()
		if first {
			return crashError{}
		}
		a.mu.Lock()
		a.now++
		a.most = max(a.most, a.now)
		a.order = append(a.order, id)
		a.mu.Unlock()
		defer func() { a.mu.Lock(); a.now--; a.mu.Unlock() }()
		return answerAfter(ctx, time.Second)
	}}
}

func TestWorkersOfOneEngineHaveProbationOneAtATime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		engines []string
		most    int
	}{
		"one shared engine":         {[]string{"x", "x", "x"}, 1},
		"an engine for each worker": {[]string{"x", "y", "z"}, 3},
		"engines in the workers":    {[]string{"", "", ""}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 9, 4) // so few items that they are asked one by one
				a := &probationCounter{}
				for n, at := range c.engines {
					id := "w" + string(rune('0'+n))
					d.start(id, a.executor(id), func(c *worker.Config) { c.Engine, c.InFlight = at, 4 })
				}
				d.sendWork(0, 1, 2, 3, 4, 5, 6, 7, 8)
				advance(90 * time.Second)
				if a.most != c.most {
					t.Errorf("%d workers had probation requests at once, want %d: %v", a.most, c.most, a.order)
				}
				for n := range 9 {
					if doc := d.shard(n); doc.State != shard.Done || doc.Counts.OK != 4 {
						t.Errorf("shard %d is %+v", n, doc)
					}
				}
			})
		})
	}
}

// Online requests that another worker has at the engine are over before suspects are asked, so that
// they share no crash with them, unless one lasts too long.
func TestProbationWaitsForOnlineRequestsOfOtherWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 4)
		a, began := &probationCounter{}, time.Now()
		d.start("w", a.executor("w"), func(c *worker.Config) { c.Engine, c.InFlight = "x", 4 })
		other := health.Heartbeat{Schema: record.Schema, Worker: "other", Pool: "default", State: health.Ready,
			At: began.Add(time.Hour), DueAt: began.Add(2 * time.Hour)}
		says := func(inFlight int, at time.Time) {
			other.Online, other.At = &health.Online{Socket: "s", Engine: "x", InFlight: inFlight, Limit: 4}, at
			hosttest.Save(t, d.Ports, record.HeartbeatKey(other.Worker), other)
		}
		wantAsked := func(want int, when string) {
			t.Helper()
			a.mu.Lock()
			defer a.mu.Unlock()
			if (len(a.order) > 0) != (want > 0) {
				t.Errorf("%s %d suspects were asked", when, len(a.order))
			}
		}
		says(1, began.Add(time.Hour))
		d.sendWork(0)
		advance(5 * time.Second)
		wantAsked(0, "beside an online request")
		says(0, began)
		advance(2 * time.Second)
		wantAsked(0, "when the other worker may not know of the probation")
		says(0, time.Now())
		advance(8 * time.Second)
		wantAsked(4, "after the online request")
		if doc := d.shard(0); doc.State != shard.Done || doc.Counts.OK != 4 {
			t.Errorf("the shard is %+v", doc)
		}
		says(1, began.Add(time.Hour))
		d.sendWork(1)
		advance(45 * time.Second)
		if doc := d.shard(1); doc.State != shard.Done {
			t.Errorf("beside a request that does not end, the shard is %+v", doc)
		}
	})
}

// A shard that stops while it waits for online requests gives the engine's lock back.
func TestPausedShardGivesTheEngineLockBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 4)
		d.start("w", (&probationCounter{}).executor("w"), func(c *worker.Config) { c.Engine, c.InFlight = "x", 4 })
		later := time.Now().Add(time.Hour)
		other := health.Heartbeat{Schema: record.Schema, Worker: "other", Pool: "default", State: health.Ready,
			At: later, DueAt: later, Online: &health.Online{Socket: "s", Engine: "x", InFlight: 1, Limit: 4}}
		hosttest.Save(t, d.Ports, record.HeartbeatKey(other.Worker), other)
		flag := func() string {
			return hosttest.Load[health.Heartbeat](t, d.Ports, record.HeartbeatKey("w")).ProbationEngine
		}
		d.sendWork(0)
		advance(5 * time.Second)
		if got := flag(); got != "x" {
			t.Fatalf("the worker waits with the flag %q", got)
		}
		d.setControl(1, record.DesiredPause, "lunch")
		advance(5 * time.Second)
		if got := flag(); got != "" {
			t.Errorf("while the run is paused the worker has the flag %q", got)
		}
		other.Online.InFlight = 0
		hosttest.Save(t, d.Ports, record.HeartbeatKey(other.Worker), other)
		d.setControl(2, record.DesiredRun, "")
		d.sendWork(0)
		advance(20 * time.Second)
		if doc := d.shard(0); doc.State != shard.Done || doc.Counts.OK != 4 {
			t.Errorf("after it is resumed the shard is %+v", doc)
		}
	})
}

// A worker that dies with the engine's lock blocks the others only until its
// heartbeat counts as dead.
func TestEngineLockOfDeadWorkerIsReleased(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 4)
		a := &probationCounter{}
		shared := func(c *worker.Config) { c.Engine, c.InFlight = "x", 4 }
		first := d.start("w0", a.executor("w0"), shared)
		d.sendWork(0)
		advance(500 * time.Millisecond)
		first.kill()
		<-first.done
		if doc := d.shard(0); !slices.Equal(doc.OnProbation, []int{0}) || doc.Suspects.Len() != 4 {
			t.Fatalf("after the kill the document is %+v", doc)
		}
		killed := time.Now()
		d.start("w1", a.executor("w1"), shared)
		d.sendWork(1)
		for d.shard(1).State != shard.Done {
			advance(250 * time.Millisecond)
			if time.Since(killed) > 20*time.Second {
				t.Fatal("the lock is not released")
			}
		}
		if took := time.Since(killed); took < 5*time.Second || took > 14*time.Second {
			t.Errorf("the other worker's probation ended after %s", took)
		}
		d.sendWork(0)
		advance(10 * time.Second)
		if doc := d.shard(0); doc.State != shard.Done || doc.Counts.OK != 4 {
			t.Errorf("the dead worker's shard is %+v", doc)
		}
	})
}

// A worker that loses its lease during a probation request does not write the
// outcome.
func TestI11FencedWorkerWritesNoProbationOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 4)
		d.sendWork(0)
		e := &fakeExecutor{}
		e.answer = func(ctx context.Context, n int) error {
			if doc := d.shard(0); n == 2 && doc.Suspects.Has(2) {
				d.stores.failWith(func(c call) error { // heartbeats fail from here on
					if c.what == "write" && c.key == record.HeartbeatKey("w1") {
						return fault.New(fault.Unavailable, "the store is down")
					}
					return nil
				})
				<-time.After(7 * time.Second)
			}
			if n == 2 {
				return crashError{shard.Crash{EngineStart: "s", Alone: true}}
			}
			return nil
		}
		w := d.start("w1", e, func(c *worker.Config) { c.Engine, c.InFlight = "x", 4 })
		advance(2 * time.Second)
		before := d.shard(0)
		if !slices.Equal(before.OnProbation, []int{2}) {
			t.Fatalf("the document is %+v", before)
		}
		d.start("w2", &fakeExecutor{}, func(c *worker.Config) { c.Engine = "x" })
		advance(8 * time.Second) // past the failure timeout of its last heartbeat
		d.sendWork(0)
		advance(10 * time.Second)
		if !w.ended() || !fault.Is(w.err, fault.Fenced) {
			t.Errorf("ended: %v, %v", w.ended(), w.err)
		}
		doc := d.shard(0)
		if doc.State != shard.Done || doc.Worker != "w2" || doc.Counts.OK != 4 {
			t.Errorf("the shard is %+v", doc)
		}
	})
}
