package statistics_test

import (
	"fmt"
	"math"
	"testing"

	"rollout/shared/core/statistics"
)

// ones returns n scores, of which the first k are 1, in groups of that size.
func ones(k, n, size int) (out []statistics.Score) {
	for i := range n {
		s := statistics.Score{Group: fmt.Sprint(i / size)}
		if i < k {
			s.Value = 1
		}
		out = append(out, s)
	}
	return out
}

// TestIntervalOfAShareIsWilsons has the values of statsmodels' proportion_confint(k, n,
// method="wilson").
func TestIntervalOfAShareIsWilsons(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		scores    []statistics.Score
		low, high float64
	}{
		{"independent scores", ones(8, 10, 1), 0.4901624715, 0.9433178485},
		{"none right", ones(0, 60, 1), 0, 0.0601718521},
		{"all right", ones(60, 60, 1), 0.9398281479, 1},
		{"none right of twelve tasks", ones(0, 60, 5), 0, 0.2424940067},
		{"groups of equal scores count once", ones(40, 50, 5), 0.4901624715, 0.9433178485},
		{"one score", ones(1, 1, 1), 0.2065493143, 1},
	} {
		e := statistics.Share(c.scores, 0.95)
		if math.Abs(e.Interval[0]-c.low) > 1e-9 || math.Abs(e.Interval[1]-c.high) > 1e-9 {
			t.Errorf("%s: %v, want %v to %v", c.name, e.Interval, c.low, c.high)
		}
	}
	if e := statistics.Share(nil, 0.95); e.N != 0 || !math.IsNaN(e.Interval[0]) {
		t.Errorf("no score: %+v", e)
	}
}

// TestGroupsThatVaryLessCountAtMostAsTheirScores has one right score in each group: such groups vary
// less than chance would have it.
func TestGroupsThatVaryLessCountAtMostAsTheirScores(t *testing.T) {
	t.Parallel()
	var scores []statistics.Score
	for g := range 50 {
		for i := range 2 {
			right := i == 0 && g > 0 || g == 0
			s := statistics.Score{Group: fmt.Sprint(g)}
			if right {
				s.Value = 1
			}
			scores = append(scores, s)
		}
	}
	e, whole := statistics.Share(scores, 0.95), statistics.Share(ones(51, 100, 1), 0.95)
	if e.N != 100 || math.Abs(e.Interval[0]-whole.Interval[0]) > 1e-12 ||
		math.Abs(e.Interval[1]-whole.Interval[1]) > 1e-12 {
		t.Errorf("%+v, want the interval of %+v", e, whole)
	}
}
