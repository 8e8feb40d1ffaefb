package coordinate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// A coordinator crashes between the step that decides a pause or an end and its effect
// that tells holders. They get their whole grace from when another one tells them.
func TestGraceOfAStopThatIsToldLateBeginsLate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		effect           run.Effect
		begins, gaveUp   run.Phase // in the grace, and after it
		givesUpTheHolder bool      // after the grace the shard is sealed
	}{
		"end":   {run.Effect{Kind: run.SetEnd, Why: string(run.ReasonFailFast)}, run.Ending, run.Finalizing, true},
		"pause": {run.Effect{Kind: run.SetPause, Why: "an input is gone"}, run.Pausing, run.Interrupted, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := newFixture(t, 1, 2)
				c1 := d.coordinator()
				d.apply(c1, look)
				d.holdShard()
				s := d.state()
				s.Phase, s.Effects, s.StopRequestedAt = c.begins, run.Effects{c.effect}, time.Now()
				s.GraceUntil = s.StopRequestedAt.Add(wholeGrace())
				if c.begins == run.Ending {
					s.Reason, s.FrozenFrontier = run.ReasonFailFast, s.NextShard
				}
				hosttest.Save(t, d.Ports, record.CoordinatorKey(id), s)

				time.Sleep(20 * time.Second)
				told := time.Now()
				for _, at := range []struct {
					since time.Duration
					want  run.Phase
				}{{0, c.begins}, {wholeGrace() - time.Millisecond, c.begins}, {wholeGrace() + time.Millisecond, c.gaveUp}} {
					time.Sleep(time.Until(told.Add(at.since)))
					d.holdShard()
					d.apply(d.coordinator(), look)
					sealed := hosttest.Load[shard.Doc](t, d.Ports, identity.ShardKey(id, 0)).Sealed != ""
					if got := d.state().Phase; got != at.want || sealed != (c.givesUpTheHolder && at.want == c.gaveUp) {
						t.Errorf("%s after holders are told: the run is %s, want %s; sealed %v", at.since, got, at.want, sealed)
					}
				}
			})
		})
	}
}

// holdShard says that a living worker holds shard 0 and has not heard of a stop.
func (d fixture) holdShard() {
	now := time.Now()
	held := shard.Doc{Schema: shard.Schema, Run: id, State: shard.Running, Attempt: 1, Worker: "w1", ClaimedAt: now}
	hosttest.Save(d.t, d.Ports, identity.ShardKey(id, 0), held)
	timings := host.Timings(config.DefaultDeployment().Health)
	hosttest.Save(d.t, d.Ports, record.HeartbeatKey("w1"), health.Heartbeat{Schema: 1, Worker: "w1", Pool: "default",
		At: now, DueAt: timings.Due(now), Holds: []health.HeldShard{{Run: id, Shard: 0, Attempt: 1}}})
}

// wholeGrace is that of the coordinators of newCoordinator: of holders, and until their
// heartbeats show its end.
func wholeGrace() time.Duration {
	t := host.Timings(config.DefaultDeployment().Health)
	return 10*time.Second + 2*t.Interval + t.SkewBudget
}
