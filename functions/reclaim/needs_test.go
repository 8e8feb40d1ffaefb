package reclaim

import (
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/run"
	"rollout/shared/core/scaling"
	"rollout/shared/host"
)

// What waits is what no worker holds that goes on with it, and what is held
// needs no machine more.
func TestWhatPoolsNeedIsWhatNoLivingWorkerHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		seven := func(s *run.State) { s.Shards, s.NextShard = 7, 7; s.Done.Set.Add(0) }
		d.waits(id, time.Now(), seven)
		paused := id[:len(id)-1] + "A"
		d.waits(paused, time.Now(), func(s *run.State) { s.Phase = run.Paused })
		now := time.Now()
		for worker, b := range map[string]health.Heartbeat{
			"one":       {Instance: "i-1", DueAt: now, Holds: []health.HeldShard{{Run: id, Shard: 0}, {Run: id, Shard: 1}}}, // shard 0 is done already
			"two":       {Instance: "i-1", DueAt: now, Holds: []health.HeldShard{{Run: id, Shard: 2}}},
			"elsewhere": {Host: "h", DueAt: now},
			"leaves":    {Instance: "i-2", DueAt: now, State: health.Draining, Holds: []health.HeldShard{{Run: id, Shard: 3}}},
			"dead":      {Instance: "i-3", DueAt: now.Add(-time.Hour), Holds: []health.HeldShard{{Run: id, Shard: 4}}},
		} {
			b.Schema, b.Worker, b.Pool, b.At = 1, worker, "default", b.DueAt
			if b.State == "" {
				b.State = health.Ready
			}
			d.save("beat/"+worker, b)
		}
		got := map[string]scaling.Demand{}
		if err := ScanOnce(t.Context(), d.Ports, cloud, func(pool string, n scaling.Demand) { got[pool] = got[pool].And(n) }); err != nil {
			t.Fatal(err)
		}
		if want := map[string]scaling.Demand{"default": {OpenShards: 6, UnclaimedShards: 4, LiveMachines: 2}}; !maps.Equal(got, want) {
			t.Errorf("needed: %+v, want %+v", got, want)
		}
		d.received(host.CoordinateQueue)
	})
}
