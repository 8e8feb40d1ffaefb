package worker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"rollout/gpuworker/worker"
)

// Where queue requests cost money, the events of shards that end one after the
// other share one request. The last shard's event is sent at once, because the
// worker is idle.
func TestEventsAreBatchedUntilWorkerIsIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t, 4, 1)
		durations := []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 600 * time.Millisecond, 3 * time.Second}
		answer := func(ctx context.Context, item int) error { return answerAfter(ctx, durations[item]) }
		d.start("w1", &fakeExecutor{answer: answer},
			func(c *worker.Config) { c.InFlight, c.Gather, c.LongPoll = 4, time.Second, 20*time.Second })
		d.sendWork(0, 1, 2, 3)
		for _, c := range []struct {
			after  time.Duration
			events int
		}{
			{900 * time.Millisecond, 0},
			{200 * time.Millisecond, 3},
			{1800 * time.Millisecond, 0},
			{200 * time.Millisecond, 1},
		} {
			advance(c.after)
			if got := d.coordinateEvents(); len(got) != c.events {
				t.Errorf("%v later coordinate was sent %v, want %d events", c.after, got, c.events)
			}
		}
		if n := d.queued(work); n != 0 {
			t.Errorf("%d messages are not acknowledged", n)
		}
	})
}
