package worker_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/gpuworker/worker"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
)

const idle = 5 * time.Minute

func TestAWorkerRetiresWhenNothingWasInItsHandsForLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 1, 2)
		w := d.start("w1", &engine{answer: func(ctx context.Context, _ int) error { return takes(ctx, 10*time.Minute) }})
		pass(4 * time.Minute)
		d.offer(0)
		pass(8 * time.Minute) // it is at work
		if left, retired := w.DrainIfIdle(idle); retired || left != idle {
			t.Errorf("while it works: retired %v, else in %s", retired, left)
		}
		pass(4 * time.Minute) // the shard was done two minutes ago
		if d.shard(0).State != shard.Done {
			t.Fatal("the shard is not done: the test shows nothing")
		}
		if n := w.Answered(); n != 2 {
			t.Errorf("it has answered %d items of 2", n)
		}
		left, retired := w.DrainIfIdle(idle)
		if retired || left < 2*time.Minute || left > 4*time.Minute {
			t.Errorf("soon after its work: retired %v, else in %s", retired, left)
		}
		pass(left)
		if _, retired := w.DrainIfIdle(idle); !retired || !w.over() || w.err != nil {
			t.Errorf("after that: retired %v, over %v, %v", retired, w.over(), w.err)
		}
	})
}

func TestAWorkerThatDrainsIsNotRetired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, 1, 2).start("w1", &engine{})
		pass(2 * idle)
		w.Drain("a notice")
		if _, retired := w.DrainIfIdle(idle); retired {
			t.Error("it is")
		}
	})
}

// A server that starts again takes its time, and the work for it waits.
func TestAWorkerWhoseEngineIsAwayIsNotIdleYet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newFixture(t, 1, 2).start("w1", &engine{ready: func() error { return fault.New(fault.Unavailable, "it starts") }})
		pass(19 * time.Minute)
		if _, retired := w.DrainIfIdle(idle); retired {
			t.Error("it is retired after 19 minutes")
		}
		pass(2 * time.Minute)
		if _, retired := w.DrainIfIdle(idle); !retired {
			t.Error("it is not retired after 21 minutes")
		}
	})
}

// polls counts the requests that ask for messages, by queue.
type polls struct {
	queue.Queues
	mu    sync.Mutex
	asked map[string]int
}

func (p *polls) Receive(ctx context.Context, name string, most int, visibility, wait time.Duration) ([]queue.Message, error) {
	p.mu.Lock()
	p.asked[name]++
	p.mu.Unlock()
	return p.Queues.Receive(ctx, name, most, visibility, wait)
}

// Where every request costs money, an idle worker makes few, and finds all work
// at once all the same.
func TestAnIdleWorkerWithLongPollsAsksSeldomAndFindsWorkAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 3, 2)
		p := &polls{Queues: d.Queues, asked: map[string]int{}}
		d.Queues = p
		d.start("w1", &engine{}, func(c *worker.Config) { c.LongPoll = 20 * time.Second })
		pass(10 * time.Minute)
		urgent, usual := host.UrgentQueue("default"), host.WorkQueue("default")
		p.mu.Lock()
		if u, w := p.asked[urgent], p.asked[usual]; u != 31 || w != 31 {
			t.Errorf("%d and %d requests in 10 minutes, want 31 each", u, w)
		}
		p.mu.Unlock()
		for i, q := range []string{usual, urgent, usual} {
			d.send(q, events.Work{Run: string(run), Shard: i, Row: i, Pool: "default"})
			pass(100 * time.Millisecond)
			if s := d.shard(i); s.State != shard.Done {
				t.Errorf("the shard in %s is %s", q, s.State)
			}
		}
	})
}
