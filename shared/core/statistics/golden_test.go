package statistics_test

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"rollout/shared/core/statistics"
)

// golden is what SciPy, statsmodels and Inspect compute: see testdata/golden.py.
type golden struct {
	McNemars []struct {
		Up, Down int
		P        float64
	}
	Wilcoxons []struct {
		Differences         []float64
		Greater, Less, Both float64
	}
	Paired []struct {
		First, Second      []float64
		Mean, P, Low, High float64
		Detectable         *float64 `json:"detectable_of_power"`
	}
	Means []struct {
		Values           []float64
		Groups           []string
		Error, Low, High float64
	}
	Reductions []struct {
		Scores  []float64
		Reduced map[string]*float64
	}
	Holms      []struct{ P, Adjusted []float64 }
	Bootstraps []struct {
		Values    []float64
		Low, High float64
	}
}

func TestResultsAreThoseOfSciPyAndInspect(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var want golden
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	if len(want.McNemars)*len(want.Wilcoxons)*len(want.Paired)*len(want.Means)*len(want.Reductions)*len(want.Holms)*
		len(want.Bootstraps) == 0 {
		t.Fatal("golden.json lacks values")
	}
	check := func(what string, got, want float64) {
		t.Helper()
		if math.IsNaN(got) || math.Abs(got-want) > 1e-9*max(1e-6, math.Abs(want)) {
			t.Errorf("%s is %v, want %v", what, got, want)
		}
	}
	for _, w := range want.McNemars {
		check("McNemar's P", statistics.McNemar(w.Up, w.Down), w.P)
	}
	for _, w := range want.Wilcoxons {
		got := statistics.Wilcoxon(w.Differences)
		check("the P of a greater difference", got.Greater, w.Greater)
		check("the P of a lesser difference", got.Less, w.Less)
		check("the P of a difference", got.Both, w.Both)
	}
	for _, w := range want.Paired {
		var p statistics.Paired
		for i := range w.First {
			p.Add(w.First[i], w.Second[i])
		}
		got := p.Difference(0.95)
		check("the mean difference", got.Mean, w.Mean)
		check("the P of the t-test", got.P, w.P)
		check("the lower end", got.Interval[0], w.Low)
		check("the upper end", got.Interval[1], w.High)
		if w.Detectable != nil && math.Abs(got.Detectable / *w.Detectable - 1) > 0.05 {
			t.Errorf("of %d items, %v can be detected, want about %v", got.Items, got.Detectable, *w.Detectable)
		}
	}
	for _, w := range want.Means {
		var scores []statistics.Score
		for i, v := range w.Values {
			scores = append(scores, statistics.Score{Group: w.Groups[i], Value: v})
		}
		got := statistics.Mean(scores, 0.9)
		check("the error of the mean", got.Error, w.Error)
		check("the lower end", got.Interval[0], w.Low)
		check("the upper end", got.Interval[1], w.High)
	}
	for _, w := range want.Reductions {
		for name, value := range w.Reduced {
			r, err := statistics.ParseReducer(name)
			if err != nil {
				t.Fatal(err)
			}
			switch got := r.Reduce(w.Scores, 1); {
			case value != nil:
				check(name, got, *value)
			case !math.IsNaN(got):
				t.Errorf("%s of %v is %v, want NaN", name, w.Scores, got)
			}
		}
	}
	for _, w := range want.Holms {
		for i, got := range statistics.Holm(w.P) {
			check("an adjusted P", got, w.Adjusted[i])
		}
	}
	for _, w := range want.Bootstraps {
		var scores []statistics.Score
		for _, v := range w.Values {
			scores = append(scores, statistics.Score{Value: v})
		}
		got := statistics.Bootstrap(scores, 0.9, 20_000, 3)
		if width := w.High - w.Low; math.Abs(got[0]-w.Low) > width/30 || math.Abs(got[1]-w.High) > width/30 {
			t.Errorf("the bootstrap interval is %v, want about [%v %v]", got, w.Low, w.High)
		}
	}
}
