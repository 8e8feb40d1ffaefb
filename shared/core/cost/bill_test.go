package cost_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/core/cost"
)

var list = cost.Prices{
	Date: "2025-11", Machines: map[string]float64{"a": 2, "b": 4}, Classes: map[string]float64{cost.Spot: 0.25},
	Parts: map[string]float64{"b/spot": 0.125},
	Positions: []cost.Position{
		{Name: "puts", Price: 0.5, Run: 1, Shard: 2, MachineHour: 4},
		{Name: "calls", Function: true, Price: 0.25, Shard: 1},
	},
}

func TestPricesKnowClasses(t *testing.T) {
	t.Parallel()
	for kind, want := range map[cost.Kind]float64{
		{Type: "a", Class: cost.OnDemand}: 2, {Type: "a", Class: cost.Spot}: 0.5, {Type: "b", Class: "task"}: 4,
		{Type: "b", Class: cost.Spot}: 0.5, {Type: "b", Class: cost.OnDemand}: 4,
		{Type: "c", Class: cost.Spot}: 0,
	} {
		if got := list.Hour(kind); got != want {
			t.Errorf("an hour of %s costs $%g, want $%g", kind.Key(), got, want)
		}
	}
}

func TestBillHasEveryLine(t *testing.T) {
	t.Parallel()
	const hour = 3600_000_000
	machines := cost.Uses{
		"b/spot":      cost.Use{Busy: hour, Boot: hour / 2, Idle: hour / 2}.At(1),
		"a/on-demand": cost.Use{Busy: 2 * hour}.At(2),
	}
	b := cost.NewBill(7, machines, 3, list)
	got := fmt.Sprint(b.Tokens, b.Machines, b.Boot, b.Idle, b.Functions, b.Storage, b.Total(), b.Kinds[0].Type)
	// storage: (1 + 2·3 + 4·4 hours) · 0.5; functions: 3 · 0.25
	if want := "7 5 0.5 0.5 0.75 11.5 25.25a"; got != want {
		t.Errorf("bill %s, want %s", got, want)
	}
}

// TestUsesKeepTheirSum adds uses of more kinds than are told apart.
func TestUsesKeepTheirSum(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var all cost.Uses
		var want cost.Use
		for range rapid.IntRange(0, 60).Draw(t, "uses") {
			use := cost.Use{Busy: rapid.Int64Range(0, 1e9).Draw(t, "busy"), Idle: rapid.Int64Range(0, 1e9).Draw(t, "idle"),
				Boot: rapid.Int64Range(0, 1e9).Draw(t, "boot")}.At(rapid.Float64Range(0, 100).Draw(t, "price"))
			all.Add(cost.Uses{fmt.Sprint("t", rapid.IntRange(0, 30).Draw(t, "type"), "/spot"): use})
			want = want.Plus(use)
		}
		if all.Sum() != want || all.Joined().Sum() != want || len(all) > 17 {
			t.Fatalf("%d kinds with %+v, want %+v", len(all), all.Sum(), want)
		}
		b := cost.NewBill(0, all, 0, cost.Prices{})
		if sum := b.Machines + b.Boot + b.Idle; math.Abs(sum-want.USD()) > 1e-9*(1+want.USD()) {
			t.Fatalf("the lines have $%g, the machines cost $%g", sum, want.USD())
		}
	})
}

// TestReportsOfAUseCountOnce takes over the reports of a holder in any order, also more
// than once.
func TestReportsOfAUseCountOnce(t *testing.T) {
	t.Parallel()
	before := cost.Uses{"a/spot": {Busy: 10, NanoUSD: 5}, "b/spot": {Busy: 1}}
	first, last := cost.Use{Busy: 12, Boot: 3, NanoUSD: 6}, cost.Use{Busy: 20, Boot: 3, Idle: 1, NanoUSD: 9}
	got := before.AtLeast("a/spot", last).AtLeast("a/spot", first).AtLeast("a/spot", last).AtLeast("", cost.Use{})
	if got["a/spot"] != last || got["b/spot"] != before["b/spot"] || before["a/spot"].Busy != 10 || len(got) != 2 {
		t.Errorf("%+v, with %+v before", got, before)
	}
	full := cost.Uses{}
	for i := range 40 {
		full.Add(cost.Uses{fmt.Sprintf("t%d/spot", i): {Busy: 1}})
	}
	once := full.AtLeast("new/spot", last)
	if twice := once.AtLeast("new/spot", last); twice.Sum() != once.Sum() || once[cost.OtherKinds].Busy < last.Busy {
		t.Errorf("among many kinds, a repeated report makes %+v of %+v", twice.Sum(), once.Sum())
	}
	if got := cost.Uses(nil).AtLeast("a/spot", first); got["a/spot"] != first {
		t.Errorf("the first report makes %+v", got)
	}
}
