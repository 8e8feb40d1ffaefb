package pruning_test

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/core/design"
	"rollout/shared/core/pruning"
	"rollout/shared/core/statistics"
)

// none is a trial without a score.
var none = math.NaN()

// scoresOf returns the sums of scores by variant and task, one each.
func scoresOf(variants ...[]float64) *pruning.Scores {
	s := pruning.NewScores(len(variants[0]), len(variants))
	for v, scores := range variants {
		for task, x := range scores {
			if !math.IsNaN(x) {
				s.Add(task, v, x)
			}
		}
	}
	return s
}

// times returns n times x.
func times(n int, x float64) []float64 { return slices.Repeat([]float64{x}, n) }

func pruned(d pruning.Decision) (out []int) {
	for _, v := range d.Variants {
		if v.Pruned {
			out = append(out, v.Number)
		}
	}
	return out
}

var raceRule = pruning.Rule{Kind: pruning.Race, Alpha: 0.05, Shape: statistics.ShapePocock, Test: pruning.Auto,
	MinTasks: 5}

// TestDecisions has a look at three variants a row.
func TestDecisions(t *testing.T) {
	t.Parallel()
	halving := pruning.Rule{Kind: pruning.Halving, Eta: 2, MinTasks: 2}
	fixed := pruning.Rule{Kind: pruning.Fixed, Below: 0.5, MinTasks: 3}
	sign := raceRule
	sign.Test = pruning.McNemar
	for name, c := range map[string]struct {
		rule   pruning.Rule
		scores *pruning.Scores
		want   []int
		best   int
	}{
		"clearly worse":   {raceRule, scoresOf(times(30, 1), times(30, 0), times(30, 1)), []int{1}, 0},
		"equal ones stay": {raceRule, scoresOf(times(30, 1), times(30, 1), times(30, 1)), nil, 0},
		"too few tasks":   {raceRule, scoresOf(times(4, 1), times(4, 0), times(4, 1)), nil, -1},
		"the best one is compared with none": {raceRule,
			scoresOf(append(times(20, none), times(20, 1)...), append(times(20, 0), times(20, none)...),
				append(times(20, none), times(20, 1)...)), nil, 0},
		"scores that are no shares": {raceRule, scoresOf(times(30, 7), times(30, -3), times(30, 6.5)), []int{1, 2}, 0},
		"the sign of differences":   {sign, scoresOf(times(30, 7), times(30, -3), times(30, 7)), []int{1}, 0},
		"half of them":              {halving, scoresOf(times(3, 0.2), times(3, 0.9), times(3, 0.5)), []int{0}, 1},
		"of equal ones the last":    {halving, scoresOf(times(3, 0.5), times(3, 0.5), times(3, 0.5)), []int{2}, 0},
		"on the tasks of all": {halving,
			scoresOf([]float64{1, 0.1, 0.1}, []float64{none, 0.2, 0.2}, []float64{none, 0.3, 0.3}), []int{0}, 2},
		"without tasks of all": {halving, scoresOf([]float64{1, none, 1}, []float64{none, 1, 1}, times(3, 0)), nil, -1},
		"below a bound":        {fixed, scoresOf(times(3, 0.4), times(3, 0.5), times(3, 0.6)), []int{0}, -1},
		"all below a bound":    {fixed, scoresOf(times(3, 0.4), times(3, 0), times(3, 0.1)), []int{0, 1, 2}, -1},
		"a bound of few tasks": {fixed, scoresOf([]float64{0, 0, none}, times(3, 1), []float64{0, 0, 0}), []int{2}, -1},
	} {
		d := c.rule.Decide(c.scores, pruning.Look{Number: 1, Of: 3, Variants: []int{0, 1, 2}})
		if got := pruned(d); !slices.Equal(got, c.want) || d.Best != c.best {
			t.Errorf("%s: %v are pruned, want %v; the best one is %d, want %d\n%+v", name, got, c.want, d.Best, c.best, d)
		}
	}
}

// TestPrunedVariantsAreNotLookedAt leaves the best variant out.
func TestPrunedVariantsAreNotLookedAt(t *testing.T) {
	t.Parallel()
	s := scoresOf(times(30, 1), times(30, 0), times(30, 0.5))
	d := raceRule.Decide(s, pruning.Look{Number: 2, Of: 3, Variants: []int{1, 2}})
	if d.Best != 2 || len(d.Variants) != 2 || !slices.Equal(pruned(d), []int{1}) {
		t.Errorf("%+v", d)
	}
	d = raceRule.Decide(s, pruning.Look{Number: 2, Of: 3, Variants: []int{1}})
	if d.Tested || len(pruned(d)) > 0 {
		t.Errorf("the last one: %+v", d)
	}
}

// TestUnspentAlphaIsLeftForTheNextTest looks at a sample whose first looks held no test.
func TestUnspentAlphaIsLeftForTheNextTest(t *testing.T) {
	t.Parallel()
	s := scoresOf(times(9, 1), times(9, 1))
	at := func(number, tested int) float64 {
		return raceRule.Decide(s, pruning.Look{Number: number, Of: 10, Variants: []int{0, 1}, Tested: tested}).Level
	}
	if sum := at(1, 0) + at(2, 1) + at(3, 2); math.Abs(at(3, 0)-sum) > 1e-12 || at(3, 2) >= at(3, 0) {
		t.Errorf("the third look may use %v without an earlier test, and those three %v", at(3, 0), sum)
	}
}

// TestPIsThatOfSciPy has P of a race that SciPy's binomtest and wilcoxon give, adjusted by
// statsmodels' multipletests with the pairs that were not compared as P of 1. golden.py prints them.
func TestPIsThatOfSciPy(t *testing.T) {
	t.Parallel()
	for _, g := range golden(t) {
		rule := raceRule
		rule.Test, rule.MinTasks = pruning.Test(g.Test), 2
		look := pruning.Look{Number: 3, Of: 8, Tested: 2}
		for v := range g.Scores {
			look.Variants = append(look.Variants, v)
		}
		rule.Alpha, rule.Shape = g.Alpha, statistics.Shape(g.Spending)
		d := rule.Decide(scoresOf(g.Scores...), look)
		same := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(1e-6, math.Abs(b)) }
		if d.Best != g.Best || !same(d.Level, g.Level) || !slices.Equal(pruned(d), g.Pruned) {
			t.Errorf("%s: best %d, level %v, pruned %v; want %d, %v, %v", g.Test, d.Best, d.Level, pruned(d), g.Best, g.Level,
				g.Pruned)
		}
		for v, p := range g.P {
			if pair := d.Variants[v].Pair; (pair == nil) != (p == nil) ||
				p != nil && (!same(pair.P, *p) || !same(pair.Adjusted, *g.Adjusted[v])) {
				t.Errorf("%s: variant %d is %+v, want p %v", g.Test, v, pair, p)
			}
		}
	}
}

func TestPlacesDivideTheSchedule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		d     design.Design
		looks int
		want  []int
	}{
		{design.Design{Tasks: 40, Variants: 3, Replications: 1, Order: design.Random}, 10,
			[]int{10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110}},
		{design.Design{Tasks: 10, Variants: 4, Replications: 1, Order: design.Interleaved}, 2, []int{12, 20, 32}},
		{design.Design{Tasks: 4, Variants: 2, Replications: 3, Order: design.ByTask}, 3, []int{6, 12, 18}},
		{design.Design{Tasks: 1, Variants: 2, Replications: 3, Order: design.ByTask}, 3, nil},
		{design.Design{Variants: 2, Replications: 3, Order: design.ByTask}, 3, nil},
		{design.Design{Tasks: 9, Variants: 2, Replications: 1, Order: design.Random}, 0, nil},
	} {
		if got := pruning.Places(c.d, c.looks); !slices.Equal(got, c.want) {
			t.Errorf("%+v, %d looks: %v, want %v", c.d, c.looks, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
		d := design.Design{Tasks: n("tasks", 0, 60), Variants: n("variants", 1, 6), Replications: n("replications", 1, 4),
			Order: rapid.SampledFrom([]design.Order{design.ByTask, design.Interleaved, design.Random}).Draw(t, "order")}
		looks := n("looks", 0, 32)
		last := 0
		got := pruning.Places(d, looks)
		for _, at := range got {
			if at <= last || at >= d.Trials() {
				t.Fatalf("%v of %d trials", got, d.Trials())
			}
			last = at
		}
		if len(got) == 1 || len(got) > looks+1 {
			t.Fatalf("%d places of %d looks", len(got), looks)
		}
	})
}

// TestScoresSurviveTheirObject reads sums back, and refuses bytes of others.
func TestScoresSurviveTheirObject(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		tasks, variants := rapid.IntRange(0, 5).Draw(t, "tasks"), rapid.IntRange(1, 3).Draw(t, "variants")
		s, back := pruning.NewScores(tasks, variants), pruning.NewScores(tasks, variants)
		for range rapid.IntRange(0, 20).Draw(t, "scores") {
			if tasks > 0 {
				s.Add(rapid.IntRange(0, tasks-1).Draw(t, "task"), rapid.IntRange(0, variants-1).Draw(t, "variant"),
					rapid.Float64Range(-9, 9).Draw(t, "score"))
			}
		}
		b, _ := s.AppendBinary(nil)
		if err := back.UnmarshalBinary(b); err != nil {
			t.Fatal(err)
		}
		again, _ := back.AppendBinary(nil)
		if !slices.Equal(b, again) {
			t.Fatalf("%x became %x", b, again)
		}
		if back.UnmarshalBinary(append(b, 0)) == nil || len(b) > 0 && back.UnmarshalBinary(b[:len(b)-1]) == nil {
			t.Fatal("bytes of other sums are read")
		}
	})
}
