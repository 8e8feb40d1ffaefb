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

// A shard whose holder died is claimed within a second, however much other
// work waits; and looking for such shards keeps nothing else waiting.
func TestWhatIsUrgentGoesAheadOfWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const shards, lost = 40, 39
		d := newFixture(t, shards, 2)
		e := &engine{answer: func(ctx context.Context, _ int) error { return takes(ctx, 100*time.Millisecond) }}
		for n := range shards - 1 {
			d.offer(n)
		}
		d.start("w1", e)
		pass(time.Second)
		d.send(host.UrgentQueue("default"), events.Work{Run: string(run), Shard: lost, Row: lost, Generation: 1, Pool: "default"})
		pass(time.Second)
		if s := d.shard(lost); s.State == shard.Pending {
			t.Errorf("the urgent shard is %s after a second", s.State)
		}
		if n := d.waiting(host.WorkQueue("default")); n == 0 {
			t.Fatal("nothing else waits: the test shows nothing")
		}
		pass(5 * time.Second)
		for n := range shards {
			if s := d.shard(n); s.State != shard.Done {
				t.Errorf("shard %d is %s", n, s.State)
			}
		}
	})
}

// An idle worker finds urgent work as soon as other work.
func TestAnIdleWorkerFindsUrgentWork(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 2, 2)
		d.start("w1", &engine{})
		pass(10 * time.Second)
		d.send(host.UrgentQueue("default"), events.Work{Run: string(run), Generation: 1, Pool: "default"})
		pass(2 * time.Second)
		if s := d.shard(0); s.State != shard.Done {
			t.Errorf("the shard is %s", s.State)
		}
	})
}
