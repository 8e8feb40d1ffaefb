package run

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"rollout/shared/core/cost"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
)

// TestBudgetPaysForWhatIsSent answers shards in any order until the budget is used
// up. What was sent by then costs no more than the budget and one shard for each
// worker, if all shards cost the same; otherwise no more shards are in flight than the
// rest of the budget pays for at the mean cost.
func TestBudgetPaysForWhatIsSent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		shards, workers := rapid.IntRange(1, 400).Draw(t, "shards"), rapid.IntRange(0, 20).Draw(t, "workers")
		budget := int64(rapid.IntRange(1, 20_000).Draw(t, "budget"))
		costs := rapid.SliceOfN(rapid.SampledFrom([]int64{1, 10, 100, 1000}), 1, 4).Draw(t, "costs")
		costOf := func(n int) int64 { return costs[n*7919%len(costs)] }
		rules := Rules{Budget: cost.Spend{Tokens: budget}, Constraints: drawConstraints(t)}
		world := Observed{Shards: shards, Items: uint64(shards), Complete: true, Workers: workers, Pool: 64 * workers}
		attributes := drawAttributes(t)
		s, now := New(testRun), epoch
		var events []Event
		for s.Reason == "" {
			before := s
			s, _ = Step(s, withRows(s, world, rules, events, attributes, 3), rules, events, now)
			now = now.Add(time.Second)
			flying := s.InFlight.Len()
			used, done := s.Counts.PromptTokens, int64(s.Done.Set.Len())
			if left := budget - used; s.NextShard > before.NextShard && used > 0 && flying > 1 &&
				int64(flying-1)*used >= left*done {
				t.Fatalf("%d shards are in flight; %d tokens are left, and %d shards cost %d", flying, left, done, used)
			}
			if flying > max(1, workers, int(done)) {
				t.Fatalf("%d shards are in flight, with %d workers and %d shards done", flying, workers, done)
			}
			events = drawAnswers(t, s, costOf)
		}
		var sent int64
		for n := range shards {
			if s.WasSent(n) {
				sent += costOf(n)
			}
		}
		if len(costs) == 1 && sent > budget+int64(max(1, workers))*costs[0] {
			t.Fatalf("shards of %d tokens are sent, the budget is %d", sent, budget)
		}
		if s.Reason != ReasonBudget && s.Done.Frontier() < shards {
			t.Fatalf("the run ends as %s", s.Reason)
		}
	})
}

// drawAnswers returns events by which at least one shard in flight is done.
func drawAnswers(t *rapid.T, s State, costOf func(n int) int64) (events []Event) {
	var flying []int
	for _, c := range s.InFlight.Chunks {
		for n := c.Lo; n < c.Hi; n++ {
			flying = append(flying, n)
		}
	}
	if len(flying) == 0 {
		return nil
	}
	first := rapid.IntRange(0, len(flying)-1).Draw(t, "first")
	for i := range rapid.IntRange(1, len(flying)).Draw(t, "answers") {
		n := flying[(first+i)%len(flying)]
		events = append(events, Event{Kind: ShardDone, Shard: n, Counts: shard.Counts{OK: 1, PromptTokens: costOf(n)}})
	}
	return events
}

// TestShardsOfOneItemKeepToTheBudget is the case that a window alone gets wrong: 256
// shards fit into it, and 50 into the budget.
func TestShardsOfOneItemKeepToTheBudget(t *testing.T) {
	t.Parallel()
	s, rules := New(testRun), Rules{Budget: cost.Spend{Tokens: 5000}}
	world := Observed{Shards: 256, Items: 256, Complete: true, Workers: 4, Pool: 1024}
	var events []Event
	for s.Reason == "" {
		s, _ = Step(s, world, rules, events, epoch)
		events = nil
		for _, c := range s.InFlight.Chunks {
			events = append(events, Event{Kind: ShardDone, Shard: c.Lo,
				Counts: shard.Counts{OK: 1, PromptTokens: 40, CompletionTokens: 60}})
		}
	}
	if s.Reason != ReasonBudget || s.Sent() > 51 {
		t.Errorf("the run ends as %s after %d shards are sent; the budget pays for 50", s.Reason, s.Sent())
	}
	s, _ = Step(New(testRun), world, Rules{}, nil, epoch)
	if want := schedule.Window(world.Pool, 0, 0); s.Sent() != min(want, 256) {
		t.Errorf("without a budget %d shards are sent, want %d", s.Sent(), min(want, 256))
	}
}

// TestDollarsCountTheControlPlane sends shards until a budget is used up of which the requests
// of the control plane take a part.
func TestDollarsCountTheControlPlane(t *testing.T) {
	t.Parallel()
	list := cost.Prices{Positions: []cost.Position{
		{Name: "puts", Price: 1e-6, Run: 500, Shard: 10},
		{Name: "calls", Function: true, Price: 1e-6, Shard: 5, MachineHour: 7200},
	}}
	const second = 1_000_000
	use := cost.Uses{"a/spot": cost.Use{Busy: second}.At(3.6)}
	rules := Rules{Budget: cost.Spend{MicroUSD: 50_000}, Prices: list}
	world := Observed{Shards: 256, Items: 256, Complete: true, Workers: 4, Pool: 1024}
	s, events := New(testRun), []Event(nil)
	for s.Reason == "" {
		s, _ = Step(s, world, rules, events, epoch)
		functions, storage := list.ControlPlane(s.Sent(), s.Counts.Machines.Sum().Micros())
		if want := int64(math.Ceil(1e6 * (functions + storage))); s.ControlMicroUSD != want {
			t.Fatalf("the control plane costs %d millionths of a dollar, want %d", s.ControlMicroUSD, want)
		}
		events = nil
		for _, c := range s.InFlight.Chunks {
			events = append(events, Event{Kind: ShardDone, Shard: c.Lo, Counts: shard.Counts{OK: 1, Machines: use}})
		}
	}
	// A shard takes $0.001 of a machine and 17 millionths of the control plane.
	if got := s.Spent(); s.Reason != ReasonBudget || got.MicroUSD < 50_000 || got.MicroUSD > 51_100 || s.Sent() != 49 {
		t.Errorf("the run ends as %s with %+v spent, after %d shards", s.Reason, got, s.Sent())
	}
	want := "the budget of $0.05 is used up (limits.dollars): $" + dollars(s.Spent()) + " are spent"
	if s.Message != want {
		t.Errorf("the run says %q, want %q", s.Message, want)
	}
}

func TestMoneyOfMessagesIsReadable(t *testing.T) {
	t.Parallel()
	for micros, want := range map[int64]string{1: "0.000001", 4000: "0.004", 50_817: "0.050817", 100_000: "0.10",
		1_100_000: "1.10", 1_500_000_000: "1500.00"} {
		if got := dollars(cost.Spend{MicroUSD: micros}); got != want {
			t.Errorf("%d millionths are %s, want %s", micros, got, want)
		}
	}
}

// Where a shard takes a part of the control plane beside its allowance, a budget that pays for
// one more sends it while others are in flight, and hands out no more than is left.
func TestTheLastPartOfABudgetIsSent(t *testing.T) {
	t.Parallel()
	for free, want := range map[int64]struct {
		shards int
		each   int64
	}{
		99: {0, 0}, 100: {1, 90}, 150: {1, 140}, 199: {1, 189}, 210: {1, 200}, 420: {2, 200}, 100_000: {7, 12_500},
	} {
		b := budget{limit: 1_000_000, used: 1_000_000 - free, overhead: 10, mean: 100}
		n, each := b.share(8, 8, 1)
		if n != want.shards || each != want.each {
			t.Errorf("of %d, %d shards get %d, want %d and %d", free, n, each, want.shards, want.each)
		}
		if int64(n)*(each+b.overhead) > free {
			t.Errorf("%d shards get %d and the control plane %d, of %d", n, each, b.overhead, free)
		}
	}
	if n, each := (budget{limit: 100, used: 95, overhead: 10, mean: 100}).share(8, 8, 0); n != 1 || each != 1 {
		t.Errorf("with nothing in flight, %d shards get %d, want 1 and 1", n, each)
	}
}
