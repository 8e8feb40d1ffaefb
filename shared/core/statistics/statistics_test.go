package statistics_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"rollout/shared/core/statistics"
)

// near reports whether two results are equal but for rounding.
func near(a, b float64) bool {
	return math.IsNaN(a) && math.IsNaN(b) || math.Abs(a-b) <= 1e-9*max(1, math.Abs(a))
}

func TestReducersMakeOneScore(t *testing.T) {
	t.Parallel()
	nan := math.NaN()
	for _, c := range []struct {
		name   string
		scores []float64
		want   float64
	}{
		{"mean", []float64{0, 1, 1}, 2.0 / 3},
		{"mean", nil, nan},
		{"median", []float64{3, 1, 2}, 2},
		{"median", []float64{4, 1, 2, 3}, 2.5},
		{"max", []float64{0.2, 0.9, 0.4}, 0.9},
		{"mode", []float64{0, 1, 1, 0, 0.5}, 0},
		{"at_least_2", []float64{1, 0, 1}, 1},
		{"at_least_3", []float64{1, 0, 1}, 0},
		{"at_least_3", []float64{1, 1}, 0},
		{"pass_at_1", []float64{1, 0, 0, 0, 0}, 0.2},
		{"pass_at_2", []float64{1, 0, 0, 0, 0}, 1 - 6.0/10},
		{"pass_at_5", []float64{1, 0, 0, 0, 0}, 1},
		{"pass_at_6", []float64{1, 0, 0, 0, 0}, nan},
		{"pass_all_2", []float64{1, 1, 1, 0, 0}, 3.0 / 10},
		{"pass_all_4", []float64{1, 1, 1, 0, 0}, 0},
		{"pass_all_6", []float64{1, 1, 1, 0, 0}, nan},
	} {
		r, err := statistics.ParseReducer(c.name)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Reduce(c.scores, 1); !near(got, c.want) {
			t.Errorf("%s of %v is %v, want %v", c.name, c.scores, got, c.want)
		}
		if r.String() != c.name {
			t.Errorf("the name of %s is %s", c.name, r)
		}
	}
	for _, name := range []string{
		"", "pass_at_", "pass_at_0", "pass_at_-1", "pass_at_+1", "pass_at_01", "mean_2", "Mean",
	} {
		if r, err := statistics.ParseReducer(name); err == nil {
			t.Errorf("%q is the reducer %s", name, r)
		}
	}
}

// TestErrorOfAMeanFollowsTheFormula compares with the double sum over the pairs of each group.
func TestErrorOfAMeanFollowsTheFormula(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for groups := 2; groups < 8; groups++ {
		var scores []statistics.Score
		for range 40 {
			scores = append(scores, statistics.Score{Group: fmt.Sprint(r.IntN(groups)), Value: r.Float64()})
		}
		e := statistics.Mean(scores, 0.95)
		sum := 0.0
		for _, a := range scores {
			for _, b := range scores {
				if a.Group == b.Group {
					sum += (a.Value - e.Mean) * (b.Value - e.Mean)
				}
			}
		}
		c := float64(e.Groups)
		if want := math.Sqrt(sum*c/(c-1)) / 40; !near(e.Error, want) || e.N != 40 {
			t.Errorf("%d groups: the error is %v, want %v", groups, e.Error, want)
		}
	}
}

func TestAMeanOfOneGroupHasNoError(t *testing.T) {
	t.Parallel()
	e := statistics.Mean([]statistics.Score{{Group: "a", Value: 1}, {Group: "a", Value: 0}}, 0.95)
	if e.Mean != 0.5 || e.Groups != 1 || !math.IsNaN(e.Error) || !math.IsNaN(e.Interval[0]) {
		t.Errorf("the estimate is %+v", e)
	}
	if e := statistics.Mean(nil, 0.95); !math.IsNaN(e.Mean) || e.N != 0 {
		t.Errorf("the estimate of nothing is %+v", e)
	}
}

// TestPairedSeesWhatAnUnpairedTestMisses has 220 items of which the second setting answers 18
// more: an unpaired test of the two shares finds a P of 0.08, McNemar's test 0.008.
func TestPairedSeesWhatAnUnpairedTestMisses(t *testing.T) {
	t.Parallel()
	var p statistics.Paired
	for i := range 220 {
		switch {
		case i < 30:
			p.Add(0, 1)
		case i < 42:
			p.Add(1, 0)
		case i < 110:
			p.Add(1, 1)
		default:
			p.Add(0, 0)
		}
	}
	d := p.Difference(0.95)
	first, second := 80.0/220, 98.0/220
	z := (second - first) / math.Sqrt((first*(1-first)+second*(1-second))/219)
	if unpaired := math.Erfc(z / math.Sqrt2); math.Abs(unpaired-0.08) > 0.001 {
		t.Errorf("unpaired, P is %v, want 0.080", unpaired)
	}
	if d.Test != statistics.TestMcNemar || math.Abs(d.P-0.008) > 0.0005 || d.Up != 30 || d.Down != 12 {
		t.Errorf("paired, the difference is %+v", d)
	}
	if d.Interval[0] <= 0 || d.Detectable <= 0 || d.Detectable > 0.1 {
		t.Errorf("the interval is %v, and %v can be detected", d.Interval, d.Detectable)
	}
}

func TestDifferencesOfFewItemsSayWhatTheyCan(t *testing.T) {
	t.Parallel()
	var p statistics.Paired
	if d := p.Difference(0.95); d.Items != 0 || !math.IsNaN(d.Mean) || !math.IsNaN(d.P) {
		t.Errorf("of no item, the difference is %+v", d)
	}
	p.Add(0.25, 0.5)
	if d := p.Difference(0.95); d.Mean != 0.25 || !math.IsNaN(d.P) || !math.IsNaN(d.Interval[1]) {
		t.Errorf("of one item, the difference is %+v", d)
	}
	for range 3 {
		p.Add(0.5, 0.75)
	}
	if d := p.Difference(0.95); d.P != 0.125 || d.Test != statistics.TestStudent {
		t.Errorf("of four items that all gain a quarter, the difference is %+v", d)
	}
	p = statistics.Paired{}
	for range 4 {
		p.Add(0.5, 0.5)
	}
	if d := p.Difference(0.95); d.P != 1 || d.Mean != 0 || !math.IsNaN(d.Detectable) {
		t.Errorf("of four items that stay the same, the difference is %+v", d)
	}
}

// TestRoundingIsNoEvidence has differences that are equal but for rounding.
func TestRoundingIsNoEvidence(t *testing.T) {
	t.Parallel()
	var p statistics.Paired
	p.Add(0.1, 0.4)
	p.Add(0.2, 0.5)
	if d := p.Difference(0.95); d.P != 0.5 || !math.IsNaN(d.Interval[0]) {
		t.Errorf("the difference is %+v", d)
	}
}

// TestWilcoxonCountsAllPatternsOfSigns compares with a count of all patterns, also of
// differences with equal sizes and of 0.
func TestWilcoxonCountsAllPatternsOfSigns(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		d := make([]float64, r.IntN(10))
		for i := range d {
			d[i] = float64(r.IntN(9) - 4)
		}
		want := countPatterns(d)
		if got := statistics.Wilcoxon(d); !near(got.Greater, want.Greater) || !near(got.Less, want.Less) ||
			!near(got.Both, want.Both) {
			t.Errorf("%v: P is %+v, want %+v", d, got, want)
		}
	}
}

func countPatterns(all []float64) statistics.Tails {
	var d []float64
	for _, x := range all {
		if x != 0 {
			d = append(d, x)
		}
	}
	rank := func(i int) float64 {
		less, same := 0, 0
		for _, x := range d {
			switch {
			case math.Abs(x) < math.Abs(d[i]):
				less++
			case math.Abs(x) == math.Abs(d[i]):
				same++
			}
		}
		return float64(less) + float64(same+1)/2
	}
	sum := func(positive func(int) bool) (total float64) {
		for i := range d {
			if positive(i) {
				total += rank(i)
			}
		}
		return total
	}
	observed := sum(func(i int) bool { return d[i] > 0 })
	patterns := 1 << len(d)
	greater, less := 0, 0
	for p := range patterns {
		s := sum(func(i int) bool { return p>>i&1 == 1 })
		if s >= observed {
			greater++
		}
		if s <= observed {
			less++
		}
	}
	tails := statistics.Tails{Greater: float64(greater) / float64(patterns), Less: float64(less) / float64(patterns)}
	tails.Both = min(1, 2*min(tails.Greater, tails.Less))
	return tails
}

func TestBootstrapDrawsWholeGroups(t *testing.T) {
	t.Parallel()
	var whole, apart []statistics.Score
	for i := range 200 {
		v := float64(i / 20 % 2)
		whole = append(whole, statistics.Score{Group: fmt.Sprint(i / 20), Value: v})
		apart = append(apart, statistics.Score{Value: v})
	}
	few, many := statistics.Bootstrap(whole, 0.95, 2000, 7), statistics.Bootstrap(apart, 0.95, 2000, 7)
	if few[1]-few[0] < 2*(many[1]-many[0]) {
		t.Errorf("10 groups of equal scores have the interval %v, 200 independent scores %v", few, many)
	}
	if again := statistics.Bootstrap(whole, 0.95, 2000, 7); again != few {
		t.Errorf("the same seed gives %v and %v", few, again)
	}
}

func TestHolmAdjustsForTheNumberOfComparisons(t *testing.T) {
	t.Parallel()
	got := statistics.Holm([]float64{0.01, 0.04, 0.03, 0.005, 0.9})
	for i, want := range []float64{0.04, 0.09, 0.09, 0.025, 0.9} {
		if !near(got[i], want) {
			t.Errorf("adjusted, they are %v", got)
			break
		}
	}
}

// TestLooksTogetherSpendAtMostAlpha has looks at any shares of the sample.
func TestLooksTogetherSpendAtMostAlpha(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	for _, shape := range []statistics.Shape{statistics.ShapeObrienFleming, statistics.ShapePocock} {
		s := statistics.Spending{Alpha: 0.05, Shape: shape}
		for range 100 {
			sum, before := 0.0, 0.0
			for before < 1 {
				now := min(1, before+r.Float64()/5)
				at := s.At(before, now)
				if at < 0 {
					t.Fatalf("%s: a look at %v may use %v", shape, now, at)
				}
				sum, before = sum+at, now
			}
			if !near(sum, 0.05) {
				t.Errorf("%s: all looks together use %v", shape, sum)
			}
		}
		if early := s.At(0, 0.25); (shape == statistics.ShapeObrienFleming) != (early < 0.001) {
			t.Errorf("%s: a look at a quarter may use %v", shape, early)
		}
	}
}
