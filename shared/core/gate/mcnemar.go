package gate

import "math"

// mcnemar returns the P of McNemar's exact one-sided test for tickets with one 0/1 score
// before and after: the probability that at least so many of the changed tickets are
// fixed, if fixed and broken are equally likely. Tickets that did not change say nothing.
// (McNemar 1947; as an exact binomial test: Agresti, Categorical Data Analysis, 10.1.4.)
func mcnemar(fixed, broken int) float64 { return upperTail(fixed+broken, fixed) }

// upperTail returns the probability of at least k heads in n throws of a fair coin.
//
// It computes C(n,k) / 2^n as a product of n−k ratios, whose binary exponent is kept apart,
// and the other terms from it. The relative error is below 10^-15 for each changed ticket,
// and there is no logarithm or exponential whose last bit differs between machines.
func upperTail(n, k int) float64 {
	switch {
	case k <= 0:
		return 1
	case 2*k <= n:
		return 1 - upperTail(n, n-k+1)
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
