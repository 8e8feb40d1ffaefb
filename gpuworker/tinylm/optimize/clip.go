package optimize

import (
	"math"

	"rollout/shared/fault"
)

// Norm returns the Euclidean norm of all gradients. It adds the squares in
// float64, in chunks of a fixed size, so that the order of the sum does not
// depend on the number of threads.
func Norm(on Compute, gradients []float32) float64 {
	sums := make([]float64, (len(gradients)+chunk-1)/chunk)
	on.each(len(gradients), func(from, to int) {
		var lanes [4]float64
		x := gradients[from:to]
		for ; len(x) >= 4; x = x[4:] {
			v := (*[4]float32)(x)
			for i := range lanes {
				lanes[i] += float64(float64(v[i]) * float64(v[i]))
			}
		}
		for i, v := range x {
			lanes[i] += float64(float64(v) * float64(v))
		}
		sums[from/chunk] = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
	})
	sum := 0.0
	for _, s := range sums {
		sum += s
	}
	return math.Sqrt(sum)
}

// Clip scales the gradients down so that their norm is at most limit, and returns
// the norm before scaling. With a limit of 0 it changes nothing. If the norm is
// not finite, Clip returns a Corrupt fault and changes nothing; the caller must
// not take a step with such gradients.
func Clip(on Compute, gradients []float32, limit float64) (norm float64, err error) {
	norm = Norm(on, gradients)
	if norm-norm != 0 {
		return norm, fault.New(fault.Corrupt, "optimize: the gradients' norm is %v: training diverged: "+
			"try a lower learning rate, more warm-up or a lower clipping limit", norm)
	}
	if limit > 0 && norm > limit {
		f := float32(limit / norm)
		on.each(len(gradients), func(from, to int) { on.Kernels.Scale(gradients[from:to], f) })
	}
	return norm, nil
}
