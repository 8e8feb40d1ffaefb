package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/worker"
)

// Where requests to queues cost money, the news of shards that end one after
// the other share one; the last one's does not wait, as nothing follows it.
func TestNewsGatherUntilTheWorkerHasRunDry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 4, 1)
		takesItem := []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 600 * time.Millisecond, 3 * time.Second}
		d.start("w1", &engine{answer: func(ctx context.Context, item int) error { return takes(ctx, takesItem[item]) }},
			func(c *worker.Config) { c.InFlight, c.Gather, c.LongPoll = 4, time.Second, 20*time.Second })
		d.offer(0, 1, 2, 3)
		for _, c := range []struct {
			after time.Duration
			news  int
		}{{900 * time.Millisecond, 0}, {200 * time.Millisecond, 3}, {1800 * time.Millisecond, 0}, {200 * time.Millisecond, 1}} {
			pass(c.after)
			if got := d.heard(); len(got) != c.news {
				t.Errorf("%v later coordinate hears of %v, want %d shards", c.after, got, c.news)
			}
		}
		if n := d.waiting(work); n != 0 {
			t.Errorf("%d messages are not acknowledged", n)
		}
	})
}
