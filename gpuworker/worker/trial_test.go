package worker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/worker"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// crashingEngine is an engine that dies of some items, and says that it worked on
// nothing else if so.
func crashingEngine(items ...int) *engine {
	e := &engine{}
	starts := 0
	e.answer = func(ctx context.Context, n int) error {
		if err := takes(ctx, 100*time.Millisecond); err != nil {
			return err
		}
		if !slices.Contains(items, n) {
			return nil
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		starts++
		return dies{shard.Crash{EngineStart: string(rune('a' + starts)), Alone: e.inFlight == 1}}
	}
	return e
}

func inFlight(n int) func(*worker.Config) { return func(c *worker.Config) { c.InFlight = n } }

func TestASuspectIsAskedAloneNamedAndWithAllRowsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 3, 10)
		d.offer(0, 1, 2)
		e := crashingEngine(4)
		answer, trials := e.answer, 0
		e.answer = func(ctx context.Context, n int) error {
			if doc := d.shard(0); n == 4 && doc.Suspects.Has(4) {
				trials++
				e.mu.Lock()
				if e.inFlight != 1 {
					t.Errorf("in trial %d %d requests are in flight", trials, e.inFlight)
				}
				e.mu.Unlock()
				if !slices.Equal(doc.OnProbation, []int{4}) || doc.Checkpoint == nil || doc.Counts.OK != 9 {
					t.Errorf("in trial %d the document is %+v", trials, doc)
				}
				if doc.Crashes[4].Alone != trials-1 {
					t.Errorf("before trial %d the deaths are %v", trials, doc.Crashes)
				}
			}
			return answer(ctx, n)
		}
		d.start("w1", e, inFlight(6))
		pass(10 * time.Second)
		if trials != 2 {
			t.Errorf("%d trials", trials)
		}
		for n := range 3 {
			doc, poison := d.shard(n), 0
			if n == 0 {
				poison = 1
			}
			if doc.State != shard.Done || doc.Counts.OK != 10-poison || doc.Counts.ByClass["poison"] != poison || doc.Suspects.Len() != 0 {
				t.Errorf("shard %d is %+v", n, doc)
			}
		}
	})
}

// A suspect is written down before anything more is asked of its shard.
func TestNothingIsAskedBeforeTheSuspectsAreWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 10)
		d.offer(0)
		e := crashingEngine(1)
		e.answer = func(ctx context.Context, n int) error {
			if n == 1 {
				return dies{}
			}
			return takes(ctx, time.Second)
		}
		d.stores.failing(func(c call) error {
			if c.what == "write" && c.key != record.HeartbeatKey("w1") && len(e.questions()) > 0 {
				return fault.New(fault.Unavailable, "the store is away")
			}
			return nil
		})
		d.start("w1", e, inFlight(2))
		pass(5 * time.Second)
		if asked := e.questions(); !slices.Equal(asked, []int{0, 1}) {
			t.Errorf("asked %v while the suspect was not written", asked)
		}
		d.stores.failing(nil)
		pass(3 * time.Second)
		if asked := e.questions(); len(asked) < 4 || !d.shard(0).Suspects.Has(1) {
			t.Errorf("asked %v, suspects %v", asked, d.shard(0).Suspects)
		}
	})
}

// apart counts how many workers have trials at once.
type apart struct {
	mu        sync.Mutex
	now, most int
	order     []string
}

// at is a worker's engine: of its shard's items each kills it once, so that
// all need trials, which take their time.
func (a *apart) at(id string) *engine {
	var mu sync.Mutex
	killed := map[int]bool{}
	return &engine{answer: func(ctx context.Context, n int) error {
		mu.Lock()
		first := !killed[n]
		killed[n] = true
		mu.Unlock()
		if first {
			return dies{}
		}
		a.mu.Lock()
		a.now++
		a.most = max(a.most, a.now)
		a.order = append(a.order, id)
		a.mu.Unlock()
		defer func() { a.mu.Lock(); a.now--; a.mu.Unlock() }()
		return takes(ctx, time.Second)
	}}
}

func TestWorkersThatShareAnEngineHaveTrialsOneAtATime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		engines []string
		most    int
	}{
		"the same engine":    {[]string{"x", "x", "x"}, 1},
		"an engine for each": {[]string{"x", "y", "z"}, 3},
		"engines inside":     {[]string{"", "", ""}, 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 9, 4) // so few that they are asked one by one
				a := &apart{}
				for n, at := range c.engines {
					id := "w" + string(rune('0'+n))
					d.start(id, a.at(id), func(c *worker.Config) { c.Engine, c.InFlight = at, 4 })
				}
				d.offer(0, 1, 2, 3, 4, 5, 6, 7, 8)
				pass(90 * time.Second)
				if a.most != c.most {
					t.Errorf("%d had trials at once, want %d: %v", a.most, c.most, a.order)
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

// Who dies in its turn blocks nobody longer than it takes to find it dead, and
// what it had named is held against these items alone.
func TestTheTurnOfADeadWorkerPasses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 4)
		a := &apart{}
		shared := func(c *worker.Config) { c.Engine, c.InFlight = "x", 4 }
		first := d.start("w0", a.at("w0"), shared)
		d.offer(0)
		pass(500 * time.Millisecond)
		first.kill()
		<-first.done
		if doc := d.shard(0); !slices.Equal(doc.OnProbation, []int{0}) || doc.Suspects.Len() != 4 {
			t.Fatalf("it died with the document %+v", doc)
		}
		killed := time.Now()
		d.start("w1", a.at("w1"), shared)
		d.offer(1)
		for d.shard(1).State != shard.Done {
			pass(250 * time.Millisecond)
			if time.Since(killed) > 20*time.Second {
				t.Fatal("its turn does not pass")
			}
		}
		if took := time.Since(killed); took < 5*time.Second || took > 14*time.Second {
			t.Errorf("the other one's trials were over after %s", took)
		}
		d.offer(0)
		pass(10 * time.Second)
		if doc := d.shard(0); doc.State != shard.Done || doc.Counts.OK != 4 {
			t.Errorf("its shard is %+v", doc)
		}
	})
}

// I11: who could not renew its lease in the middle of a trial writes nothing of
// what came of it, and gets no turn.
func TestAStalledWorkersTrialIsNotWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 4)
		d.offer(0)
		e := &engine{}
		e.answer = func(ctx context.Context, n int) error {
			if doc := d.shard(0); n == 2 && doc.Suspects.Has(2) {
				d.stores.failing(func(c call) error { // it is stalled from here on
					if c.what == "write" && c.key == record.HeartbeatKey("w1") {
						return fault.New(fault.Unavailable, "stalled")
					}
					return nil
				})
				<-time.After(7 * time.Second)
			}
			if n == 2 {
				return dies{shard.Crash{EngineStart: "s", Alone: true}}
			}
			return nil
		}
		w := d.start("w1", e, func(c *worker.Config) { c.Engine, c.InFlight = "x", 4 })
		pass(2 * time.Second)
		before := d.shard(0)
		if !slices.Equal(before.OnProbation, []int{2}) {
			t.Fatalf("the document is %+v", before)
		}
		d.start("w2", &engine{}, func(c *worker.Config) { c.Engine = "x" })
		pass(8 * time.Second) // past the failure timeout of its last beat
		d.offer(0)
		pass(10 * time.Second)
		if !w.over() || !fault.Is(w.err, fault.Fenced) {
			t.Errorf("over: %v, %v", w.over(), w.err)
		}
		doc := d.shard(0)
		if doc.State != shard.Done || doc.Worker != "w2" || doc.Counts.OK != 4 {
			t.Errorf("the shard is %+v", doc)
		}
	})
}
