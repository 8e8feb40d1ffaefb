package statistics

import "math"

// UpperTail returns the probability of at least k heads in n throws of a fair coin.
//
// It computes C(n,k) / 2^n as a product of n−k ratios, whose binary exponent is kept apart,
// and the other terms from it. The relative error is below 10^-15 for each throw, and there
// is no logarithm or exponential whose last bit differs between machines.
func UpperTail(n, k int) float64 {
	switch {
	case k <= 0:
		return 1
	case 2*k <= n:
		return 1 - UpperTail(n, n-k+1)
	}
	first, exponent := 1.0, -n
	for i := 1; i <= n-k; i++ {
		fraction, e := math.Frexp(first * (float64(k+i) / float64(i)))
		first, exponent = fraction, exponent+e
	}
	sum, ratio := 1.0, 1.0
	for j := k; j < n; j++ {
		// Without the conversion, some processors add the product unrounded.
		ratio = float64(ratio * (float64(n-j) / float64(j+1)))
		sum += ratio
	}
	return math.Ldexp(first*sum, exponent)
}

// McNemar returns the P of McNemar's exact two-sided test: up items have the score 1 under
// the second setting alone, and down items under the first alone. It is the probability of
// a split at least that uneven if both are equally likely; items whose score is the same say
// nothing. (McNemar 1947; as an exact binomial test: Agresti, Categorical Data Analysis,
// 10.1.4.)
func McNemar(up, down int) float64 {
	return min(1, 2*UpperTail(up+down, max(up, down)))
}
