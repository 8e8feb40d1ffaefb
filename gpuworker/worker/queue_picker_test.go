package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/shared/core/shard"
	"rollout/shared/host"
)

// A message in the urgent queue is received within a second, however many wait in
// the work queue, and all other shards are answered too.
func TestUrgentQueueGoesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const shards, lost = 40, 39
		d := newFixture(t, shards, 2)
		e := &fakeExecutor{answer: func(ctx context.Context, _ int) error {
			return answerAfter(ctx, 100*time.Millisecond)
		}}
		for n := range shards - 1 {
			d.sendWork(n)
		}
		d.start("w1", e)
		advance(time.Second)
		d.send(host.UrgentQueue("default"),
			events.Work{Run: string(run), Shard: lost, Row: lost, Generation: 1, Pool: "default"})
		advance(time.Second)
		if s := d.shard(lost); s.State == shard.Pending {
			t.Errorf("the urgent shard is %s after a second", s.State)
		}
		if n := d.queued(host.WorkQueue("default")); n == 0 {
			t.Fatal("the work queue is empty: the test needs messages in it")
		}
		advance(5 * time.Second)
		for n := range shards {
			if s := d.shard(n); s.State != shard.Done {
				t.Errorf("shard %d is %s", n, s.State)
			}
		}
	})
}

func TestIdleWorkerPollsUrgentQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 2)
		d.start("w1", &fakeExecutor{})
		advance(10 * time.Second)
		d.send(host.UrgentQueue("default"), events.Work{Run: string(run), Generation: 1, Pool: "default"})
		advance(2 * time.Second)
		if s := d.shard(0); s.State != shard.Done {
			t.Errorf("the shard is %s", s.State)
		}
	})
}
