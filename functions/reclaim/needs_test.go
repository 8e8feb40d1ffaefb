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

// A shard is unclaimed unless a worker that is alive and not draining holds it.
func TestDemandCountsShardsThatNoWorkingMachineHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		seven := func(s *run.State) { s.Shards, s.NextShard = 7, 7; s.Done.Set.Add(0) }
		d.running(id, time.Now(), seven)
		paused := id[:len(id)-1] + "A"
		d.running(paused, time.Now(), func(s *run.State) { s.Phase = run.Paused })
		now := time.Now()
		held := func(shards ...int) (out []health.HeldShard) {
			for _, n := range shards {
				out = append(out, health.HeldShard{Run: id, Shard: n})
			}
			return out
		}
		for worker, b := range map[string]health.Heartbeat{
			"one":      {Instance: "i-1", DueAt: now, Holds: held(0, 1)}, // shard 0 is done
			"two":      {Instance: "i-1", DueAt: now, Holds: held(2)},
			"idle":     {Host: "h", DueAt: now},
			"draining": {Instance: "i-2", DueAt: now, State: health.Draining, Holds: held(3)},
			"dead":     {Instance: "i-3", DueAt: now.Add(-time.Hour), Holds: held(4)},
		} {
			b.Schema, b.Worker, b.Pool, b.At = 1, worker, "default", b.DueAt
			if b.State == "" {
				b.State = health.Ready
			}
			d.save("beat/"+worker, b)
		}
		got := map[string]scaling.Demand{}
		report := func(pool string, n scaling.Demand) { got[pool] = got[pool].And(n) }
		if err := ScanOnce(t.Context(), d.Ports, cloud, report); err != nil {
			t.Fatal(err)
		}
		want := map[string]scaling.Demand{"default": {OpenShards: 6, UnclaimedShards: 4, LiveMachines: 2}}
		if !maps.Equal(got, want) {
			t.Errorf("demand: %+v, want %+v", got, want)
		}
		d.received(host.CoordinateQueue)
	})
}
