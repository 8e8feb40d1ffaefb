package optimize

import (
	"math"

	"rollout/shared/fault"
)

// Norm is the Euclidean norm of all gradients. The squares are added up in
// float64, in chunks of a fixed size, so the order of the sum is fixed too.
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

// Clip scales the gradients down so that their norm is at most limit, and
// returns what it was; a limit of 0 leaves them alone. A norm that is not a
// finite number is a Corrupt fault, and nothing is changed: no step should be
// taken with such gradients.
func Clip(on Compute, gradients []float32, limit float64) (norm float64, err error) {
	norm = Norm(on, gradients)
	if norm-norm != 0 {
		return norm, fault.New(fault.Corrupt, "optimize: the gradients' norm is %v: training diverged: try a lower learning rate, more warm-up or a lower clipping limit", norm)
	}
	if limit > 0 && norm > limit {
		f := float32(limit / norm)
		on.each(len(gradients), func(from, to int) { on.Kernels.Scale(gradients[from:to], f) })
	}
	return norm, nil
}
