package estimate

import (
	"math"
	"slices"

	"rollout/shared/core/splitmix"
)

const (
	resamples = 2000
	// maxDraws bounds the draws of all resamples together, which are then fewer than
	// resamples. There are at least leastResamples, so that the largest sample of MaxSample
	// items takes 20 million draws.
	maxDraws       = 8_000_000
	leastResamples = 200
	tail           = 0.01 // of the resamples beyond each end; see the package comment
	maxStudent     = 20   // the farthest end, in standard errors
)

// studentised returns the ends of the distribution of mean / standard error over resamples
// of the residuals, whose mean is 0. They are at least as far out as those of Student's
// distribution, and at most maxStudent.
func studentised(residuals []float64, seed uint64) (low, high float64) {
	n := len(residuals)
	atLeast := min(student(n-1), maxStudent)
	if squares(residuals) == 0 {
		return -atLeast, atLeast
	}
	random := splitmix.New(seed)
	ratios := make([]float64, max(leastResamples, min(resamples, maxDraws/n)))
	for i := range ratios {
		var sum, sumSquares float64
		for range n {
			r := residuals[random.Index(n)]
			sum, sumSquares = sum+r, sumSquares+r*r
		}
		mean := sum / float64(n)
		ratios[i] = ratio(mean, math.Sqrt(max(0, sumSquares/float64(n)-mean*mean)/float64(n-1)))
	}
	slices.Sort(ratios)
	k := int(tail * float64(len(ratios)))
	low, high = ratios[k], ratios[len(ratios)-1-k]
	return max(-maxStudent, min(low, -atLeast)), min(maxStudent, max(high, atLeast))
}

// ratio returns mean / deviation, bounded. A resample of equal residuals has no deviation.
func ratio(mean, deviation float64) float64 {
	switch {
	case mean == 0:
		return 0
	case math.Abs(mean) >= maxStudent*deviation:
		return math.Copysign(maxStudent, mean)
	}
	return mean / deviation
}

// student returns the quantile 97.5 % of Student's distribution with that many degrees of
// freedom: from a table up to 10, and then by the first terms of its expansion around the
// normal distribution (Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.5).
func student(freedom int) float64 {
	small := [...]float64{12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228}
	if freedom <= len(small) {
		return small[max(freedom, 1)-1]
	}
	const z = 1.959964
	v := float64(freedom)
	return z + (z*z*z+z)/(4*v) + (5*z*z*z*z*z+16*z*z*z+3*z)/(96*v*v)
}
