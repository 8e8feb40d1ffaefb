package estimate_test

import (
	"maps"
	"math"
	"slices"
	"testing"

	"rollout/shared/core/estimate"
)

// chosen returns the ordinals of a sample, in order, as its offers say.
func chosen(t *testing.T, size, items int, seed uint64) []uint64 {
	t.Helper()
	s := estimate.NewSampler(size, seed)
	in := map[uint64]bool{}
	for i := range uint64(items) {
		dropped, replaced, taken := s.Offer()
		if replaced {
			if !in[dropped] || !taken {
				t.Fatalf("%d is dropped and was not in the sample", dropped)
			}
			delete(in, dropped)
		}
		if taken {
			in[i] = true
		}
	}
	return slices.Sorted(maps.Keys(in))
}

func TestEveryItemIsEquallyLikely(t *testing.T) {
	t.Parallel()
	const items, size, seeds = 50, 10, 4000
	counts := make([]float64, items)
	for seed := range uint64(seeds) {
		got := chosen(t, size, items, seed)
		if len(got) != size {
			t.Fatalf("the sample is %v", got)
		}
		for _, i := range got {
			counts[i]++
		}
	}
	const mean = float64(seeds) * size / items
	for i, n := range counts {
		// 5 standard deviations of a binomial count.
		if math.Abs(n-mean) > 5*math.Sqrt(mean*(1-float64(size)/items)) {
			t.Errorf("item %d is in %v samples, want about %v", i, n, mean)
		}
	}
}

func TestASmallerSampleIsPartOfALargerOne(t *testing.T) {
	t.Parallel()
	small, large := chosen(t, 5, 300, 2), chosen(t, 50, 300, 2)
	if slices.ContainsFunc(small, func(i uint64) bool { return !slices.Contains(large, i) }) {
		t.Errorf("%v is not in %v", small, large)
	}
	if slices.Equal(small, chosen(t, 5, 300, 3)) {
		t.Error("another seed gives the same sample")
	}
	if got := chosen(t, 5, 3, 2); !slices.Equal(got, []uint64{0, 1, 2}) {
		t.Errorf("the sample of fewer items is %v", got)
	}
}
