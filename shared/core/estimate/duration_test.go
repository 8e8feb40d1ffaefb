package estimate_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"rollout/shared/core/estimate"
)

// steady returns the times of n answers of a server with so many requests at once, each of
// which takes 1 s on average.
func steady(n, atOnce int, seed uint64) []float64 {
	r := rand.New(rand.NewPCG(seed, 2))
	slots := make([]float64, atOnce)
	var out []float64
	for range n {
		free := 0
		for i := range slots {
			if slots[i] < slots[free] {
				free = i
			}
		}
		slots[free] += 0.2 + 0.8*r.ExpFloat64()
		out = append(out, slots[free])
	}
	return out
}

// TestDurationOfASteadyServer compares the estimate from 200 answers with the time of all
// 20,000 at the same server. The run's own begin and end are in it.
func TestDurationOfASteadyServer(t *testing.T) {
	t.Parallel()
	contained := 0
	for seed := range uint64(100) {
		const items = 20000
		truth := 0.0
		for _, at := range steady(items, 4, seed+1000) {
			truth = max(truth, at)
		}
		got, ok := estimate.Duration(items, steady(200, 4, seed))
		if !ok || math.IsNaN(got.Value) || !(0 < got.Low && got.Low <= got.Value && got.Value <= got.High) {
			t.Fatalf("%+v, %v", got, ok)
		}
		if got.Low <= truth && truth <= got.High {
			contained++
		}
	}
	if contained < 90 {
		t.Errorf("%d of 100 intervals contain the truth", contained)
	}
}

func TestDurationNeedsAPace(t *testing.T) {
	t.Parallel()
	for name, finished := range map[string][]float64{
		"no answer": nil, "three answers": {1, 2, 3}, "answers without a time": {0, 0, 0, 0, 0},
	} {
		if got, ok := estimate.Duration(100, finished); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
	got, ok := estimate.Duration(100, []float64{4, 3, 2, 1})
	if !ok || math.Abs(got.Value-100) > 1e-9 || math.Abs(got.Low-100) > 1e-6 {
		t.Errorf("an even pace of one a second: %+v", got)
	}
}
