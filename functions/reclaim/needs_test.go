package reclaim

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/shared/core/cost"
	"rollout/shared/core/health"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/scaling"
	"rollout/shared/host"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
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
		if err := ScanOnce(t.Context(), d.Ports, scheduled(report)); err != nil {
			t.Fatal(err)
		}
		want := map[string]scaling.Demand{"default": {OpenShards: 6, UnclaimedShards: 4, LiveMachines: 2}}
		if !maps.Equal(got, want) {
			t.Errorf("demand: %+v, want %+v", got, want)
		}
		d.received(host.CoordinateQueue)
	})
}

// What is left of a run's budget in dollars is its budget less what is spent: by shards that are
// done, and by those that living workers hold.
func TestDemandSaysWhatIsLeftOfTheBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.running(id, time.Now(), func(s *run.State) {
			s.Shards, s.NextShard, s.ControlMicroUSD, s.Counts.TokenNanoUSD = 7, 7, 1_000, 500_000_000
			s.Done.Set.Add(0)
		})
		m := inputtest.Manifest(1)
		m.Config.Limits.Dollars = 2
		d.save(record.ManifestKey(id), m)
		beat := func(worker string, due time.Time, shard int) {
			d.save("beat/"+worker, health.Heartbeat{Schema: 1, Worker: worker, Pool: "default", Host: worker,
				State: health.Ready, At: due, DueAt: due, Holds: []health.HeldShard{{Run: id, Shard: shard,
					TokenNanoUSD: 100_000_000, Machine: cost.Use{Busy: 1, NanoUSD: 200_000_000}}}})
		}
		beat("one", time.Now(), 1)
		beat("two", time.Now(), 0) // shard 0 is done, and counted there
		beat("dead", time.Now().Add(-time.Hour), 2)
		got := map[string]scaling.Demand{}
		report := func(pool string, n scaling.Demand) { got[pool] = n }
		if err := ScanOnce(t.Context(), d.Ports, scheduled(report)); err != nil {
			t.Fatal(err)
		}
		if left := got["default"].LeftMicroUSD; left != 2_000_000-1_000-500_000-300_000 {
			t.Errorf("%d millionths are left of %+v", left, got)
		}
	})
}

// A run of two roles needs machines of both pools, each for its own shards.
func TestDemandIsThatOfEachRolesPool(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		d.running(id, time.Now(), func(s *run.State) {
			s.Shards, s.NextShard = 7, 7
			s.Done.Set.Add(0)
			s.Roles = []run.RoleState{{RolePlan: run.RolePlan{Shards: 4}, Done: 1}, {RolePlan: run.RolePlan{Shards: 3}}}
		})
		d.save(record.ManifestKey(id), inputtest.WithJudge(inputtest.Manifest(1)))
		d.save("beat/w", health.Heartbeat{Schema: 1, Worker: "w", Pool: "judges", Host: "h", State: health.Ready,
			At: time.Now(), DueAt: time.Now(), Holds: []health.HeldShard{{Run: id, Shard: 5}}})
		got := map[string]scaling.Demand{}
		report := func(pool string, n scaling.Demand) { got[pool] = got[pool].And(n) }
		if err := ScanOnce(t.Context(), d.Ports, scheduled(report)); err != nil {
			t.Fatal(err)
		}
		want := map[string]scaling.Demand{"default": {OpenShards: 3, UnclaimedShards: 3},
			"judges": {OpenShards: 3, UnclaimedShards: 2, LiveMachines: 1}}
		if !maps.Equal(got, want) {
			t.Errorf("demand: %+v, want %+v", got, want)
		}
	})
}

// Whether the message of an unclaimed shard still waits is a question to the
// queues of its role's pool alone.
func TestUnclaimedShardIsLostOnceItsRolesQueueIsEmpty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newFixture(t)
		m := inputtest.Plan(t, d.Ports, inputtest.WithJudge(inputtest.Manifest(1)), inputtest.Prompts(0, 1),
			inputtest.Prompts(1, 1))
		d.running(id, time.Now().Add(-time.Minute), func(s *run.State) {
			s.Shards, s.NextShard = 2, 2
			s.InFlight.MarkSent(0, time.Now().Add(-time.Minute), interval.Range{Lo: 1, Hi: 2})
		})
		d.save(record.ManifestKey(id), m)
		if err := d.Queues.Send(t.Context(), host.WorkQueue("default"), [][]byte{[]byte("x")}, 0); err != nil {
			t.Fatal(err)
		}
		if err := d.Scan(t.Context()); err != nil {
			t.Fatal(err)
		}
		var lost []int
		for _, p := range d.received(host.CoordinateQueue) {
			if e, ok := p.(events.ShardLost); ok {
				lost = append(lost, e.Shard)
			}
		}
		if !slices.Equal(lost, []int{1}) {
			t.Errorf("lost are %v, want the judge's shard 1", lost)
		}
	})
}
