package gate

import (
	"math/bits"
	"slices"
)

// randomisation returns the P of a one-sided paired randomisation test of the mean
// difference: the share of sign patterns under which the differences sum up to as much as
// they do, or more.
//
// If a candidate makes no difference, a ticket's scores before and after could as well
// have been exchanged, which flips the sign of its difference. Then the test accepts with
// a probability of at most alpha, exactly: for any number of tickets and any distribution
// of scores. A bootstrap comes near that only with many tickets; with ten it accepts up to
// twice as often (TestBootstrapAloneAcceptsTooOften). No test can see a loss that none of
// the tickets shows: that is what Rule.MinPairs and the confirmation are for.
//
// With few changed tickets all patterns are counted; otherwise resamples random ones, and
// the pattern that was observed. Counting that too makes the test exact in spite of the
// sampling (Fisher, The Design of Experiments, 1935, section 21; Phipson and Smyth,
// Permutation p-values should never be zero, 2010).
func randomisation(d differences, resamples int, seed uint64) float64 {
	var changed []int64
	for _, x := range d.all {
		if x != 0 {
			changed = append(changed, x)
		}
	}
	// Flipping a set of signs takes twice the set's sum from the total. So a pattern gives
	// at least the total if the set's sum is at most 0. Rounding moves each difference by
	// less than a unit: sums within that count as equal, which can only raise P.
	tie := int64(len(changed))
	if len(changed) < bits.Len(uint(resamples)) { // 2^len(changed) ≤ resamples
		return allPatterns(changed, tie)
	}
	random := newDraws("rollout gate signs", seed)
	asMuch := 1
	for range resamples {
		if randomSetSum(changed, random) <= tie {
			asMuch++
		}
	}
	return float64(asMuch) / float64(resamples+1)
}

// allPatterns returns the share of the sets of changed whose sum is at most tie.
func allPatterns(changed []int64, tie int64) float64 {
	patterns := 1 << len(changed)
	asMuch := 0
	for set := range patterns {
		sum := int64(0)
		for i, x := range changed {
			if set>>i&1 == 1 {
				sum += x
			}
		}
		if sum <= tie {
			asMuch++
		}
	}
	return float64(asMuch) / float64(patterns)
}

// randomSetSum returns the sum of a random set of xs, in which each one is with a
// probability of 1/2.
func randomSetSum(xs []int64, random *draws) int64 {
	sum := int64(0)
	for len(xs) > 0 {
		n := min(32, len(xs))
		set := random.bits32()
		for _, x := range xs[:n] {
			sum += x & -int64(set&1)
			set >>= 1
		}
		xs = xs[n:]
	}
	return sum
}

// bootstrap returns the interval that contains the gain with a confidence of 1 − 2 × alpha:
// its ends are the gain's quantiles alpha and 1 − alpha over resamples in which each ticket
// was drawn with replacement, with both its scores (the percentile bootstrap of Efron and
// Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13). d must not be empty.
//
// The interval is a little short with few tickets: with 10, one for 90 % contains the gain
// in 80 to 89 % of all cases, depending on the distribution of scores. A verdict therefore
// depends on the randomisation test first. Percentiles are taken all the same because each
// is a gain that the tickets can show: a studentised interval has no bound when a resample
// has equal differences, as is common with 0/1 scores.
func bootstrap(d differences, alpha float64, resamples int, seed uint64) [2]float64 {
	random := newDraws("rollout gate bootstrap", seed)
	sums := make([]int64, resamples)
	for r := range sums {
		for range d.all {
			sums[r] += d.all[random.index(len(d.all))]
		}
	}
	slices.Sort(sums)
	k := max(1, int(alpha*float64(resamples+1)))
	return [2]float64{d.mean(sums[k-1]), d.mean(sums[resamples-k])}
}

// mean returns the mean difference of which sum is the sum over the tickets.
func (d differences) mean(sum int64) float64 {
	return float64(sum) * d.unit / float64(len(d.all))
}
