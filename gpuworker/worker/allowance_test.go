package worker_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/worker"
	"rollout/shared/config"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
)

// payingExecutor answers items by requests that take tokens.
type payingExecutor struct {
	cost   worker.Cost
	took   int64 // tokens of each request
	lasts  func(item int) time.Duration
	failed func(item int) bool // whether the item fails; nil: none does

	mu             sync.Mutex
	asked          []int
	inFlight, most int
}

func (e *payingExecutor) Ready(context.Context) error { return nil }

func (e *payingExecutor) Run(ctx context.Context, s *worker.Shard) error {
	var all sync.WaitGroup
	for i := range s.PendingItems(ctx, nil) {
		slot, permit, ok := s.AcquireSlot(ctx, e.cost)
		if !ok {
			break
		}
		n := int(s.Lines[i].Place.Item)
		e.count(n, 1)
		all.Go(func() {
			defer slot.Release()
			defer e.count(n, -1)
			if e.lasts != nil && answerAfter(ctx, e.lasts(n)) != nil {
				permit.Fail(0, 0)
				return
			}
			permit.Settle(e.took, 0, true)
			class := fault.Class("")
			if e.failed != nil && e.failed(n) {
				class = fault.Refused
			}
			s.Put(i, []byte("row\n"), class, worker.Tokens{Prompt: e.took})
		})
	}
	all.Wait()
	return nil
}

func (e *payingExecutor) count(item, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.inFlight += n
	e.most = max(e.most, e.inFlight)
	if n > 0 {
		e.asked = append(e.asked, item)
	}
}

// endless has the items from lo to hi last longer than the test, and others last d.
func endless(lo, hi int, d time.Duration) func(item int) time.Duration {
	return func(n int) time.Duration {
		if n >= lo && n < hi {
			return time.Hour
		}
		return d
	}
}

// state returns how many items were asked, and how many at once at most.
func (e *payingExecutor) state() (asked, most int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.asked), e.most
}

// sendPaid sends a work message with an allowance.
func (d *fixture) sendPaid(n, generation int, allowance int64) {
	d.send(host.WorkQueue("default"), events.Work{Run: string(run), Shard: n, Row: n, Pool: "default",
		Generation: generation, Allowance: allowance})
}

// startPaying runs a worker over the executor until the test ends.
func (d *fixture) startPaying(id string, e *payingExecutor, inFlight int) *runningWorker {
	return d.startWith(id, e, func(c *worker.Config) { c.InFlight = inFlight })
}

func TestUsedUpAllowanceHandsTheShardBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 20)
		e := &payingExecutor{cost: worker.Cost{MaxTokens: 9}, took: 10}
		d.startPaying("w1", e, 4)
		d.sendPaid(0, 0, 95)
		advance(time.Second)
		usedUp := events.ShardReleased{Run: string(run), Shard: 0, Worker: "w1", Attempt: 1, Allowance: 95, Spent: 100}
		if got := d.coordinateEvents(); !slices.Equal(got, []events.Payload{usedUp}) {
			t.Errorf("coordinate is told %+v, want %+v", got, usedUp)
		}
		doc := d.shard(0)
		if asked, _ := e.state(); asked != 10 || doc.State != shard.Pending || doc.Counts.OK != 10 || doc.Checkpoint == nil {
			t.Errorf("%d items are asked; the shard is %+v", asked, doc)
		}

		// The message comes again: nothing is claimed, and coordinate is told again.
		d.sendPaid(0, 1, 95)
		advance(time.Second)
		if got := d.coordinateEvents(); !slices.Equal(got, []events.Payload{usedUp}) || d.shard(0).Attempt != 1 {
			t.Errorf("after a repeated message coordinate is told %+v, attempt %d", got, d.shard(0).Attempt)
		}

		d.sendPaid(0, 2, 200)
		advance(time.Second)
		if doc := d.shard(0); doc.State != shard.Done || doc.Counts.OK != 20 || doc.Counts.Tokens() != 200 {
			t.Errorf("with a larger allowance the shard is %+v", doc)
		}
		if doc := d.shard(0); doc.VanishedHolders != 0 || !doc.Suspects.IsZero() {
			t.Errorf("hand-backs count as failures: %+v", doc)
		}
	})
}

// A request may begin if the most that it can take fits into what is left. What it
// does not take is there for others when it has ended.
func TestRequestsBeginAsFarAsTheAllowanceReaches(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		longest     int64
		allowance   int64
		asked, most int
	}{
		"three fit at once":                  {longest: 50, allowance: 170, asked: 17, most: 3},
		"all fit at once":                    {longest: 9, allowance: 1000, asked: 20, most: 16},
		"one that does not fit goes alone":   {longest: 4000, allowance: 30, asked: 3, most: 1},
		"the last one may be partly covered": {longest: 9, allowance: 101, asked: 11, most: 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 1, 20)
				e := &payingExecutor{cost: worker.Cost{MaxTokens: c.longest}, took: 10,
					lasts: func(n int) time.Duration { return time.Second + time.Duration(n)*time.Millisecond }}
				d.startPaying("w1", e, 16)
				d.sendPaid(0, 0, c.allowance)
				advance(time.Minute)
				if asked, most := e.state(); asked != c.asked || most != c.most {
					t.Errorf("%d items are asked, %d at once; want %d and %d", asked, most, c.asked, c.most)
				}
			})
		})
	}
}

func TestOtherShardsBeginWhileOneWaitsForItsAllowance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 10)
		e := &payingExecutor{cost: worker.Cost{MaxTokens: 1000}, took: 10, lasts: endless(0, 10, time.Second)}
		d.startPaying("w1", e, 4)
		d.sendPaid(0, 0, 100)
		advance(time.Second)
		d.sendWork(1)
		advance(10 * time.Second)
		if doc := d.shard(1); doc.State != shard.Done {
			t.Errorf("the shard behind one that waits for its allowance is %+v", doc)
		}
	})
}

func TestTokensOfAVanishedHolderCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 10)
		e := &payingExecutor{cost: worker.Cost{MaxTokens: 9}, took: 10, lasts: endless(5, 10, time.Millisecond)}
		w := d.startPaying("w1", e, 2)
		d.sendPaid(0, 0, 1000)
		advance(5 * time.Second)
		w.kill()
		advance(20 * time.Second)
		d.sendPaid(0, 1, 1000)
		d.startPaying("w2", &payingExecutor{took: 10}, 2)
		advance(time.Minute)
		c := d.shard(0).Counts
		if c.OK != 10 || c.PromptTokens != 100 || c.WastedTokens != 50 {
			t.Errorf("the answers that the first holder took with it are not counted: %+v", c)
		}
	})
}

// In a run with limits.fail_fast, the worker asks nothing more of the run at once, and
// does not wait for the end of the shard.
func TestFailedItemStopsAFailFastRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 10, func(c *config.Run) { c.Limits.FailFast = true })
		e := &payingExecutor{failed: func(n int) bool { return n == 1 }, lasts: func(n int) time.Duration {
			return time.Second + time.Duration(n)*100*time.Millisecond
		}}
		d.startPaying("w1", e, 4)
		d.sendWork(0, 1)
		advance(1150 * time.Millisecond)
		failed := events.ItemFailed{Run: string(run), Shard: 0}
		asked, _ := e.state()
		if got := d.coordinateEvents(); !slices.Equal(got, []events.Payload{failed}) || asked != 5 {
			t.Errorf("coordinate is told %+v, and %d items are asked", got, asked)
		}
		advance(20 * time.Second)
		if again, _ := e.state(); again != asked {
			t.Errorf("%d more items are asked after one has failed", again-asked)
		}
		if doc := d.shard(0); doc.State != shard.Pending || doc.Counts.OK < 2 || doc.Counts.Failed != 1 {
			t.Errorf("the shard is %+v, want it released with its rows", doc)
		}

		// Coordinate has not heard of it, and sends the shard again.
		d.coordinateEvents()
		d.send(host.WorkQueue("default"), events.Work{Run: string(run), Shard: 0, Generation: 1, Pool: "default"})
		advance(time.Second)
		if got := d.coordinateEvents(); !slices.Equal(got, []events.Payload{failed}) || d.shard(0).Attempt != 1 {
			t.Errorf("coordinate is told %+v, attempt %d", got, d.shard(0).Attempt)
		}
	})
}

// A request that is tried again waits for its allowance in its slot. One that waits for
// a slot must leave it the allowance.
func TestRetriesAndFirstTriesShareTheAllowance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 12)
		d.startWith("w1", &retryingExecutor{}, func(c *worker.Config) { c.InFlight = 3 })
		d.sendPaid(0, 0, 600)
		advance(time.Minute)
		if doc := d.shard(0); doc.State != shard.Done || doc.Counts.OK != 12 {
			t.Errorf("the shard is %+v", doc)
		}
	})
}

// retryingExecutor asks each item twice, in one slot. One request fits into the
// allowance at a time.
type retryingExecutor struct{}

func (e *retryingExecutor) Ready(context.Context) error { return nil }

func (e *retryingExecutor) Run(ctx context.Context, s *worker.Shard) error {
	c := worker.Cost{MaxTokens: 200}
	var all sync.WaitGroup
	for i := range s.PendingItems(ctx, nil) {
		slot, permit, ok := s.AcquireSlot(ctx, c)
		if !ok {
			break
		}
		all.Go(func() {
			defer slot.Release()
			if answerAfter(ctx, time.Duration(1+i)*time.Second/10) != nil {
				return
			}
			permit.Fail(0, 0)
			permit, ok := s.AcquirePermit(ctx, c)
			if !ok || answerAfter(ctx, time.Second) != nil {
				return
			}
			permit.Settle(10, 10, true)
			s.Put(i, []byte("row\n"), "", worker.Tokens{Prompt: 10, Completion: 10})
		})
	}
	all.Wait()
	return nil
}
