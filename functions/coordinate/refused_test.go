package coordinate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"rollout/events"
	"rollout/shared/core/health"
	"rollout/shared/core/run"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// The holder of shard 0, or of the judge's shard 3, reports that its requests are refused.
// The run goes on if the heartbeat of another worker says that it has answers.
func TestRefusalIsComparedWithTheAnswersOfOtherWorkers(t *testing.T) {
	t.Parallel()
	held := func(n int, ago time.Duration) health.HeldShard {
		return health.HeldShard{Run: id, Shard: n, Attempt: 1, AnsweredAt: time.Now().Add(-ago)}
	}
	type holds []health.HeldShard
	for name, c := range map[string]struct {
		refused int // the shard
		others  func() holds
		want    run.Phase
	}{
		"no other worker":                {0, func() holds { return nil }, run.Pausing},
		"an answer":                      {0, func() holds { return holds{held(1, time.Second)} }, run.Running},
		"an old answer":                  {0, func() holds { return holds{held(1, time.Hour)} }, run.Pausing},
		"no answer":                      {0, func() holds { return holds{{Run: id, Shard: 1}} }, run.Pausing},
		"its own answer":                 {0, func() holds { return holds{held(0, 0), held(1, 0)} }, run.Pausing},
		"an answer of another run":       {0, func() holds { return holds{{Run: "x", AnsweredAt: time.Now()}} }, run.Pausing},
		"an answer of another role":      {0, func() holds { return holds{held(3, 0)} }, run.Pausing},
		"an answer to the judge":         {3, func() holds { return holds{held(4, 0)} }, run.Running},
		"answers, and none to the judge": {3, func() holds { return holds{held(1, 0)} }, run.Pausing},
		"a shard that is not planned":    {9, func() holds { return holds{held(1, 0)} }, run.Pausing},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := newJudged(t)
			coordinator := d.coordinator()
			d.apply(coordinator, look)
			hosttest.Save(t, d.Ports, record.HeartbeatKey("w2"), health.Heartbeat{Schema: 1, Worker: "w2", Pool: "default",
				At: time.Now(), Holds: c.others()})
			d.apply(coordinator, events.RequestsRefused{Run: string(id), Shard: c.refused, Outcome: "status_401"})
			if s := d.state(); s.Phase != c.want {
				t.Errorf("%s: the run is %s, want %s", name, s.Phase, c.want)
			}
		})
	}
}
