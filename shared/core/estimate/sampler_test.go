package estimate_test

import (
	"math"
	"slices"
	"testing"

	"rollout/shared/core/estimate"
)

func chosen(size, items int, seed uint64) []uint64 {
	s := estimate.NewSampler(size, seed)
	for range items {
		s.Offer()
	}
	return s.Chosen()
}

func TestEveryItemIsEquallyLikely(t *testing.T) {
	t.Parallel()
	const items, size, seeds = 50, 10, 4000
	counts := make([]float64, items)
	for seed := range uint64(seeds) {
		got := chosen(size, items, seed)
		if len(got) != size || !slices.IsSorted(got) {
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

func TestOffersSayWhatTheSampleIs(t *testing.T) {
	t.Parallel()
	s := estimate.NewSampler(20, 5)
	in := map[uint64]bool{}
	for i := range uint64(500) {
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
	got := s.Chosen()
	if len(got) != 20 || len(in) != 20 || slices.ContainsFunc(got, func(i uint64) bool { return !in[i] }) {
		t.Errorf("the sample is %v, the offers said %v", got, in)
	}
}

func TestASmallerSampleIsPartOfALargerOne(t *testing.T) {
	t.Parallel()
	small, large := chosen(5, 300, 2), chosen(50, 300, 2)
	if slices.ContainsFunc(small, func(i uint64) bool { return !slices.Contains(large, i) }) {
		t.Errorf("%v is not in %v", small, large)
	}
	if slices.Equal(small, chosen(5, 300, 3)) {
		t.Error("another seed gives the same sample")
	}
	if got := chosen(5, 3, 2); !slices.Equal(got, []uint64{0, 1, 2}) {
		t.Errorf("the sample of fewer items is %v", got)
	}
}
