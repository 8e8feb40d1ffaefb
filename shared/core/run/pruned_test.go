package run

import (
	"testing"

	"rollout/shared/core/cost"
	"rollout/shared/core/interval"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
)

// TestPruneWithoutRoomIsRejected prunes variants until the state can hold no more.
func TestPruneWithoutRoomIsRejected(t *testing.T) {
	t.Parallel()
	prune := func(variant int) Event {
		return Event{Kind: VariantPruned, Variant: uint32(variant), Shard: 9, Why: "worse"}
	}
	world := Observed{Shards: 1, Items: 1}
	rules := Rules{FailFast: true}
	s := New(testRun)
	step := func(e Event) []Event {
		var rejected []Event
		s, rejected = Step(s, withRows(s, world, rules, []Event{e}, func(int) schedule.Attributes {
			return schedule.Attributes{Variant: 9999, Items: 1}
		}, 3), rules, []Event{e}, epoch)
		return rejected
	}
	for v := range maxPruned {
		if rejected := step(prune(v)); len(rejected) > 0 {
			t.Fatalf("variant %d is not pruned: %v", v, rejected)
		}
	}
	if rejected := step(prune(maxPruned)); len(rejected) != 1 || rejected[0].Variant != maxPruned ||
		s.Pruned.HasVariant(maxPruned) {
		t.Errorf("pruned %v, rejected %v", s.Pruned, rejected)
	}
	if !s.Phase.dispatches() {
		t.Errorf("the run is %s: %s", s.Phase, s.Message)
	}
	again := prune(0)
	again.Shard = 3
	if rejected := step(again); len(rejected) > 0 || s.Pruned.Has(0, 8) || !s.Pruned.Has(0, 9) {
		t.Errorf("a repeated prune: pruned %v, rejected %v", s.Pruned, rejected)
	}
}

// TestPrunedItemsAreNoShareOfFailedItems prunes a variant of a run of which fewer items
// fail than may.
func TestPrunedItemsAreNoShareOfFailedItems(t *testing.T) {
	t.Parallel()
	world := Observed{Shards: 6, Items: 1200, Complete: true, Pool: 100}
	rules := Rules{FailedShare: 0.25, Constraints: schedule.Constraints{MaxInFlightByVariant: 1}}
	attributes := func(n int) schedule.Attributes { return schedule.Attributes{Variant: uint32(n % 2), Items: 200} }
	s := New(testRun)
	step := func(events ...Event) {
		s, _ = Step(s, withRows(s, world, rules, events, attributes, 3), rules, events, epoch)
	}
	done := func(n int) Event { return Event{Kind: ShardDone, Shard: n, Counts: shard.Counts{OK: 160, Failed: 40}} }
	step()
	step(Event{Kind: VariantPruned, Variant: 1, Why: "worse"})
	step(done(0), done(1))
	step(done(2))
	if s.PrunedShards != 1 || s.Phase != Running || s.Counts.Failed != 3*40+200 {
		t.Errorf("the run is %s (%s), %d shards are pruned, counts %+v", s.Phase, s.Message, s.PrunedShards, s.Counts)
	}
}

// TestPrunedShardsDoNotLowerTheMeanCost checks that a budget is divided among as few
// shards as without the pruned ones, which cost nothing: each gets twice the mean cost.
func TestPrunedShardsDoNotLowerTheMeanCost(t *testing.T) {
	t.Parallel()
	s := New(testRun)
	s.Phase, s.Shards, s.NextShard, s.PrunedShards = Running, 1000, 110, 100
	s.Done.Set.AddRange(interval.Range{Lo: 0, Hi: 110})
	s.Counts = shard.Counts{PromptTokens: 10 * 100} // of 10 shards
	s, _ = Step(s, Observed{Shards: 1000, Items: 1000, Complete: true, Workers: 100, Pool: 100},
		Rules{Budget: cost.Spend{Tokens: 1000 + 5*100}}, nil, epoch)
	if n := s.InFlight.Len(); n != 2 {
		t.Errorf("%d shards are in flight, the rest of the budget pays for 2", n)
	}
}
