package worker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/worker"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/core/share"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// otherRun returns the id of a further run.
func otherRun(n int) identity.RunID {
	return identity.RunID(fmt.Sprintf("01JD2ZQ4T5W0M1X9YB7R3K8C%02d", n))
}

// addRun plans a further run of the pool, of shards of that many items, with that weight.
func (d *fixture) addRun(id identity.RunID, shards, items int, weight float64) {
	d.t.Helper()
	m := inputtest.Manifest(items)
	p := config.Priority(weight)
	m.Run, m.Config.Scheduling.Priority = id, &p
	inputtest.Plan(d.t, d.Ports, m, inputtest.Prompts(0, shards*items))
}

// share lists runs as those that share the pool.
func (d *fixture) share(runs ...share.Run) {
	d.t.Helper()
	doc := share.Doc{}
	for _, r := range runs {
		doc, _ = doc.With(r)
	}
	hosttest.Save(d.t, d.Ports, record.ShareKey("default"), doc)
}

// countRuns returns an executor that answers after d, and how many items it has asked of
// each run.
func countRuns(t time.Duration) (e *countingExecutor) {
	e = &countingExecutor{asked: map[identity.RunID]int{}}
	e.answer = func(ctx context.Context, _ int) error { return answerAfter(ctx, t) }
	return e
}

// countingExecutor is a fakeExecutor that counts the items of each run.
type countingExecutor struct {
	fakeExecutor
	mu    sync.Mutex
	asked map[identity.RunID]int
}

func (e *countingExecutor) Run(ctx context.Context, s *worker.Shard) error {
	var all sync.WaitGroup
	for i := range s.PendingItems(ctx, nil) {
		slot, _, ok := s.AcquireSlot(ctx, worker.Cost{})
		if !ok {
			break
		}
		e.mu.Lock()
		e.asked[s.Manifest.Run]++
		e.mu.Unlock()
		all.Go(func() {
			defer slot.Release()
			e.ask(ctx, s, i)
		})
	}
	all.Wait()
	return nil
}

func (e *countingExecutor) of(id identity.RunID) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.asked[id]
}

// The worker holds a shard of run A that lasts for 25 s. Run B opens: its shard in the
// urgent queue is claimed at once, and its items begin beside those of A, by weight.
func TestHeldShardOfASmallRunDoesNotWaitBehindALargeOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, small := newFixture(t, 8, 200), otherRun(1)
		d.addRun(small, 1, 200, 3*config.PriorityNormal)
		d.sendWork(0, 1, 2, 3, 4)
		e := countRuns(time.Second)
		d.startWith("w1", e, func(c *worker.Config) { c.InFlight = 8 })
		advance(5 * time.Second)
		if n := e.of(small); n != 0 {
			t.Fatalf("%d items of the small run are asked, and it has no message", n)
		}
		d.share(share.Run{Run: run, Weight: 4}, share.Run{Run: small, Weight: 12})
		d.send(host.UrgentQueue("default"), events.Work{Run: string(small), Pool: "default"})
		before := e.of(run)
		advance(20 * time.Second)
		large, own := e.of(run)-before, e.of(small)
		if own < 110 || own > 125 || large+own < 158 {
			t.Errorf("in 20 s of 8 requests/s, %d of the small run begin (weight 12), and %d of the large one (weight 4)",
				own, large)
		}
		if s := d.shard(4); s.State != shard.Pending {
			t.Errorf("shard 4 is %s: the worker holds more than it needs of the large run", s.State)
		}
	})
}

// The only shard of run B waits in the work queue among many of run A, which had the pool
// alone. The worker claims those of A for the sake of B, but no more than a few at once.
func TestShortRunIsFoundAmongOthersInTheWorkQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, small := newFixture(t, 40, 200), otherRun(1)
		d.addRun(small, 1, 200, config.PriorityNormal)
		d.sendWork(0, 1, 2)
		d.send(host.WorkQueue("default"), events.Work{Run: string(small), Pool: "default"})
		for n := 3; n < 40; n++ {
			d.sendWork(n)
		}
		d.share(share.Run{Run: run, Weight: 4}, share.Run{Run: small, Weight: 4})
		e := countRuns(time.Second)
		d.startWith("w1", e, func(c *worker.Config) { c.InFlight = 8 })
		advance(15 * time.Second)
		if n := e.of(small); n < 40 {
			t.Errorf("%d items of the small run are asked", n)
		}
		claimed := 0
		for n := range 40 {
			if d.shard(n).State == shard.Running {
				claimed++
			}
		}
		if claimed > 24 {
			t.Errorf("the worker holds %d shards of the large run", claimed)
		}
	})
}

// A run whose shards all are sent, and that others hold, does not make the worker claim.
func TestRunWithoutShardsToSendIsNotShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 20, 200)
		for n := range 20 {
			d.sendWork(n)
		}
		d.share(share.Run{Run: run, Weight: 4}, share.Run{Run: otherRun(1), Weight: 4, Sent: true})
		d.startWith("w1", countRuns(time.Second), func(c *worker.Config) { c.InFlight = 8 })
		advance(15 * time.Second)
		if s := d.shard(1); s.State != shard.Pending {
			t.Errorf("shard 1 is %s: nothing is short", s.State)
		}
	})
}

// A run that sends all its shards in its first step is entered as one that has sent all.
// Its messages come a moment later, behind a held shard of another run that lasts for 25 s.
func TestRunThatHasSentAllShardsIsAskedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, small := newFixture(t, 8, 200), otherRun(1)
		d.addRun(small, 4, 50, 3*config.PriorityNormal)
		d.sendWork(0, 1, 2, 3, 4)
		e := countRuns(time.Second)
		d.startWith("w1", e, func(c *worker.Config) { c.InFlight = 8 })
		advance(5 * time.Second)
		d.share(share.Run{Run: run, Weight: 4}, share.Run{Run: small, Weight: 12, Sent: true})
		advance(time.Second)
		for n := range 4 {
			d.send(host.UrgentQueue("default"), events.Work{Run: string(small), Shard: n, Row: n, Pool: "default"})
		}
		before := e.of(run)
		advance(20 * time.Second)
		large, own := e.of(run)-before, e.of(small)
		if own < 105 || own > 125 || large+own < 155 {
			t.Errorf("in 20 s of 8 requests/s, %d of the small run begin (weight 12), and %d of the large one (weight 4)",
				own, large)
		}
		advance(30 * time.Second)
		if n := e.of(small); n != 200 {
			t.Errorf("%d of the 200 items of the small run are asked", n)
		}
	})
}

// Run B had the pool alone when it sent all its shards: they wait in the work queue behind a
// held shard of another run that lasts for 25 s.
func TestRunThatHasSentAllShardsAloneIsFoundInTheWorkQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, small := newFixture(t, 8, 200), otherRun(1)
		d.addRun(small, 4, 50, 3*config.PriorityNormal)
		d.sendWork(0)
		e := countRuns(time.Second)
		d.startWith("w1", e, func(c *worker.Config) { c.InFlight = 8 })
		advance(5 * time.Second)
		for n := range 4 {
			d.send(host.WorkQueue("default"), events.Work{Run: string(small), Shard: n, Row: n, Pool: "default"})
		}
		d.share(share.Run{Run: run, Weight: 4}, share.Run{Run: small, Weight: 12, Sent: true, SentAlone: true})
		advance(20 * time.Second)
		if own := e.of(small); own < 105 || own > 125 {
			t.Errorf("in 20 s of 8 requests/s, %d of the small run begin (weight 12 of 16)", own)
		}
	})
}

// A busy worker finds the urgent queue empty once, and looks for a run that has sent all
// no more.
func TestRunWhoseShardsOthersHoldIsLookedForOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 2000)
		d.sendWork(0)
		q := &billedQueues{Queues: d.Queues, receives: map[string]int{}}
		d.Queues = q
		d.startWith("w1", countRuns(time.Second), func(c *worker.Config) { c.InFlight = 8 })
		advance(5 * time.Second)
		d.share(share.Run{Run: run, Weight: 4}, share.Run{Run: otherRun(1), Weight: 4, Sent: true})
		advance(5 * time.Second)
		count := func() int {
			q.mu.Lock()
			defer q.mu.Unlock()
			return q.receives[host.UrgentQueue("default")]
		}
		before := count()
		advance(time.Minute)
		if n := count() - before; n > 0 {
			t.Errorf("%d requests for urgent messages in a minute without any", n)
		}
	})
}

// billedQueues counts the requests for messages.
type billedQueues struct {
	queue.Queues
	mu       sync.Mutex
	receives map[string]int
}

func (q *billedQueues) Receive(ctx context.Context, name string, n int,
	visibility, wait time.Duration) ([]queue.Message, error) {
	q.mu.Lock()
	q.receives[name]++
	q.mu.Unlock()
	return q.Queues.Receive(ctx, name, n, visibility, wait)
}

// Where each request costs money, a worker that has nothing to do, in a pool of any number
// of runs, asks each queue once in a long poll.
func TestIdleWorkerAsksEachBilledQueueOnceInALongPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 1)
		d.share(share.Run{Run: run, Weight: 4}, share.Run{Run: otherRun(1), Weight: 4})
		q := &billedQueues{Queues: d.Queues, receives: map[string]int{}}
		d.Queues = q
		d.startWith("w1", countRuns(time.Second), func(c *worker.Config) { c.LongPoll = 20 * time.Second })
		advance(10*time.Minute + 10*time.Second)
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, name := range []string{host.WorkQueue("default"), host.UrgentQueue("default")} {
			if n := q.receives[name]; n < 30 || n > 31 {
				t.Errorf("%d requests for messages of %s in 10 minutes, want one in 20 s", n, name)
			}
		}
	})
}

// A busy worker that is short of a run keeps to one request in a long poll, too.
func TestShortWorkerKeepsToLongPolls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 200)
		d.sendWork(0)
		d.share(share.Run{Run: run, Weight: 4}, share.Run{Run: otherRun(1), Weight: 4})
		q := &billedQueues{Queues: d.Queues, receives: map[string]int{}}
		d.Queues = q
		d.startWith("w1", countRuns(5*time.Second), func(c *worker.Config) { c.LongPoll = 20 * time.Second })
		advance(10 * time.Minute)
		q.mu.Lock()
		defer q.mu.Unlock()
		for name, n := range q.receives {
			if n > 40 {
				t.Errorf("%d requests for messages of %s in 10 minutes", n, name)
			}
		}
	})
}
