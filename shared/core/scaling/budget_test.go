package scaling

import (
	"testing"

	"pgregory.net/rapid"
)

func TestBudgetPaysForMachines(t *testing.T) {
	t.Parallel()
	r := Rules{ShardsPerMachine: 4, MaxMachines: 8}
	for name, c := range map[string]struct {
		left int64 // millionths of a dollar
		hour float64
		live int
		want int
	}{
		"no budget":                          {0, 1, 0, 8},
		"no price":                           {1, 0, 0, 8},
		"a rich run":                         {100_000_000, 1, 0, 8},
		"three quarters of an hour":          {750_000, 1, 0, 3},
		"a machine's end is not paid":        {749_999, 1, 0, 2},
		"dear machines":                      {750_000, 2, 0, 1},
		"the last millionth":                 {1, 98.32, 0, 1},
		"those that work are paid by it too": {500_000, 1, 4, 2},
	} {
		n := Demand{OpenShards: 1000, UnclaimedShards: 1000, LiveMachines: c.live, LeftMicroUSD: c.left}
		if got := r.DesiredMachines(r.Within(n, c.hour)); got != c.want {
			t.Errorf("%s: %d machines, want %d", name, got, c.want)
		}
	}
}

// A budget never asks for more machines than the run without one, always for one while work
// waits, and for no fewer if more of it is left.
func TestBudgetOnlyHoldsMachinesBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Rules{ShardsPerMachine: rapid.IntRange(0, 50).Draw(t, "per"), MaxMachines: rapid.IntRange(1, 30).Draw(t, "most")}
		free := Demand{LiveMachines: rapid.IntRange(0, 20).Draw(t, "living"),
			UnclaimedShards: rapid.IntRange(0, 500).Draw(t, "waiting")}
		free.OpenShards = free.UnclaimedShards + rapid.IntRange(0, 500).Draw(t, "held")
		hour := rapid.Float64Range(0, 100).Draw(t, "hour")
		poor, rich := free, free
		poor.LeftMicroUSD = rapid.Int64Range(1, 1<<40).Draw(t, "left")
		rich.LeftMicroUSD = poor.LeftMicroUSD + rapid.Int64Range(0, 1<<40).Draw(t, "more")
		without := r.DesiredMachines(free)
		of, with := r.DesiredMachines(r.Within(poor, hour)), r.DesiredMachines(r.Within(rich, hour))
		if of > with || with > without || of < min(1, without) {
			t.Fatalf("%d machines, %d with more of the budget, %d without one", of, with, without)
		}
	})
}
