package optimize

import (
	"rollout/gpuworker/tinylm/kernel"
	"rollout/shared/fault"
)

// Compute selects how a step is computed: the implementation of the arithmetic
// and the number of goroutines. Neither changes the bits of results. The zero
// value is one goroutine without vector instructions.
type Compute struct {
	Kernels kernel.Set
	Threads int
}

// chunk is the number of parameters that a goroutine processes at a time.
const chunk = 8192

// each calls f with consecutive ranges that cover n elements, in parallel.
func (w Compute) each(n int, f func(from, to int)) {
	kernel.Parallel(w.Threads, (n+chunk-1)/chunk, func(_, i int) {
		f(i*chunk, min((i+1)*chunk, n))
	})
}

// sameLength returns an Invalid fault if one of the arrays has another length
// than n.
func sameLength(n int, others ...[]float32) error {
	for _, o := range others {
		if len(o) != n {
			return fault.New(fault.Invalid,
				"optimize: %d parameters but %d gradients or moments: they belong to different models", n, len(o))
		}
	}
	return nil
}
