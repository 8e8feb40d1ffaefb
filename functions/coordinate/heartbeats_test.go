package coordinate_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rollout/functions/coordinate"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/document"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// countedDocs counts how often the heartbeats are listed.
type countedDocs struct {
	document.Store
	lists *atomic.Int64
}

func (s countedDocs) List(ctx context.Context, prefix, after string, limit int) ([]document.Doc, error) {
	if prefix == record.HeartbeatPrefix && after == "" { // the first page
		s.lists.Add(1)
	}
	return s.Store.List(ctx, prefix, after, limit)
}

// Shards that are done one after the other cost at most two lists of heartbeats an
// interval, however many they are, also if one can't be decoded; a step that decides on more
// has them as they are now.
func TestHeartbeatsAreReadByTimeAndNotByShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const shards, steps = 600, 30
		interval := host.Timings(config.DefaultDeployment().Health).Interval
		d := newFixture(t, shards, 1)
		hosttest.Save(t, d.Ports, record.HeartbeatKey("of-another-version"), []int{1})
		var lists atomic.Int64
		p := d.Ports
		p.Docs = countedDocs{p.Docs, &lists}
		c := newCoordinator(p, coordinate.Options{})
		d.apply(c, look)
		lists.Store(0)
		for n := range steps {
			d.apply(c, done(n, 1))
			time.Sleep(interval / 10)
		}
		if n, most := lists.Load(), int64(steps/5+1); n > most {
			t.Errorf("the heartbeats were listed %d times in %d intervals", n, steps/10)
		}
		// The window grows as soon as a worker wakes the run.
		d.received(work)
		now := time.Now()
		hosttest.Save(t, d.Ports, record.HeartbeatKey("w"), health.Heartbeat{Schema: record.Schema, Worker: "w",
			Pool: config.DefaultPool, State: health.Ready, At: now, DueAt: now.Add(time.Hour), Started: now,
			MaxInFlight: shards})
		d.apply(c, look)
		if sent := len(d.received(work)); sent < 100 {
			t.Errorf("%d shards were sent after a worker had joined", sent)
		}
	})
}
