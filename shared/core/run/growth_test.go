package run

import (
	"slices"
	"testing"
	"time"

	"rollout/shared/core/shard"
)

// growing is a run over a plan that may grow, whose first two shards are sent.
func growing(t *testing.T) (State, Observed) {
	t.Helper()
	w := Observed{Shards: 2, Items: 20, Growing: true, Sources: 1, Pool: 4}
	s, _ := Step(New(testRun), w, Rules{}, []Event{{Kind: Reevaluate}}, epoch)
	if s.Phase != Running || s.NextShard != 2 || asksPlan(s) {
		t.Fatalf("%+v", s)
	}
	return s, w
}

func asksPlan(s State) bool {
	return slices.ContainsFunc(s.Effects, func(e Effect) bool { return e.Kind == Replan })
}

func shardsDone(from, to int) (out []Event) {
	for n := from; n < to; n++ {
		out = append(out, Event{Kind: ShardDone, Shard: n, Counts: shard.Counts{OK: 10}})
	}
	return out
}

func TestPlanIsAskedToGrowOnceWhenAllItsShardsAreDone(t *testing.T) {
	t.Parallel()
	s, w := growing(t)
	if s.PlanOutstanding() {
		t.Error("the plan is outstanding while shards are")
	}
	s, _ = Step(s, w, Rules{}, shardsDone(0, 1), epoch)
	if asksPlan(s) {
		t.Error("it was asked to grow before all shards were done")
	}
	s, _ = Step(s, w, Rules{}, shardsDone(1, 2), epoch)
	if !asksPlan(s) || s.Phase != Running || !s.PlanOutstanding() {
		t.Errorf("after the last shard: %+v", s)
	}
	s, _ = Step(s, w, Rules{}, append(shardsDone(0, 2), Event{Kind: Reevaluate}), epoch)
	if asksPlan(s) {
		t.Error("it was asked to grow again by repeated events")
	}
	// The next range is appended, and merged later.
	w.Growing, w.Sources = false, 2
	s, _ = Step(s, w, Rules{}, []Event{{Kind: Reevaluate}}, epoch)
	w.Growing, w.Shards, w.Items = true, 3, 30
	s, _ = Step(s, w, Rules{}, []Event{{Kind: Reevaluate}}, epoch)
	if s.NextShard != 3 || asksPlan(s) {
		t.Errorf("with a further range: %+v", s)
	}
	s, _ = Step(s, w, Rules{}, shardsDone(2, 3), epoch)
	if !asksPlan(s) {
		t.Error("it was not asked to grow after the second range")
	}
	w.Growing, w.Complete = false, true
	s, _ = Step(s, w, Rules{}, []Event{{Kind: Reevaluate}}, epoch)
	if s.Phase != Finalizing || s.Reason != ReasonDone || s.FrozenFrontier != 3 || s.Growing {
		t.Errorf("the complete plan: %+v", s)
	}
}

func TestGrowthIsAskedForAgainAfterASilenceAndAfterAResume(t *testing.T) {
	t.Parallel()
	s, w := growing(t)
	s, _ = Step(s, w, Rules{}, shardsDone(0, 2), epoch)
	wakeup := []Event{{Kind: Wakeup}}
	if early, _ := Step(s, w, Rules{}, wakeup, epoch.Add(planSilence/2)); asksPlan(early) {
		t.Error("a wake-up asked at once")
	}
	if late, _ := Step(s, w, Rules{}, wakeup, epoch.Add(planSilence)); !asksPlan(late) || late.Retries != 1 {
		t.Errorf("after a silence: %+v", late)
	}
	w.Sequence, w.DesiredPause = 1, true
	paused, _ := Step(s, w, Rules{}, wakeup, epoch.Add(time.Hour))
	if asksPlan(paused) || paused.Phase != Paused {
		t.Errorf("while paused: %+v", paused)
	}
	w.Sequence, w.DesiredPause = 2, false
	resumed, _ := Step(paused, w, Rules{}, []Event{{Kind: Reevaluate}}, epoch.Add(2*time.Hour))
	if !asksPlan(resumed) || resumed.Phase != Running {
		t.Errorf("after the resume: %+v", resumed)
	}
}

// What was never appended has no items.
func TestEndDoesNotWaitForAPlanThatMayGrow(t *testing.T) {
	t.Parallel()
	s, w := growing(t)
	w.Sequence, w.DesiredEnd = 1, ReasonStopped
	s, _ = Step(s, w, Rules{}, shardsDone(0, 2), epoch)
	if asksPlan(s) || s.Phase != Finalizing || s.Reason != ReasonStopped || s.Shards != 2 {
		t.Errorf("%+v", s)
	}
	w.Shards, w.Items, w.Sources = 3, 30, 2 // planned by a message that came late
	if s, _ = Step(s, w, Rules{}, []Event{{Kind: Reevaluate}}, epoch); s.Shards != 2 || s.Items != 20 {
		t.Errorf("the end took over %d shards, %d items", s.Shards, s.Items)
	}
}

// Its items belong to the run, whatever ends it.
func TestEndWaitsForARangeThatIsAppendedAndNotMerged(t *testing.T) {
	t.Parallel()
	s, w := growing(t)
	s, _ = Step(s, w, Rules{}, shardsDone(0, 2), epoch)
	w.Growing, w.Sources, w.Sequence, w.DesiredEnd = false, 2, 1, ReasonStopped
	s, _ = Step(s, w, Rules{}, []Event{{Kind: Reevaluate}}, epoch)
	if s.Phase != Ending || !s.PlanOutstanding() {
		t.Fatalf("%+v", s)
	}
	w.Growing, w.Shards, w.Items = true, 3, 30
	s, _ = Step(s, w, Rules{}, []Event{{Kind: Reevaluate}}, epoch)
	if s.Phase != Finalizing || s.Shards != 3 || s.FrozenFrontier != 2 {
		t.Errorf("%+v", s)
	}
}
