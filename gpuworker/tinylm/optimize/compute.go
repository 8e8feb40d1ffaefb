package optimize

import (
	"rollout/gpuworker/tinylm/kernel"
	"rollout/shared/fault"
)

// Compute is what a step runs on: an implementation of the arithmetic, and a
// number of goroutines. Neither changes a bit. The zero value is one goroutine
// of plain Go.
type Compute struct {
	Kernels kernel.Set
	Threads int
}

// chunk is how many parameters a goroutine takes at a time.
const chunk = 8192

// each calls f with the ranges of n elements.
func (w Compute) each(n int, f func(from, to int)) {
	kernel.Parallel(w.Threads, (n+chunk-1)/chunk, func(_, i int) {
		f(i*chunk, min((i+1)*chunk, n))
	})
}

// sameLength faults when arrays that belong together differ in length.
func sameLength(n int, others ...[]float32) error {
	for _, o := range others {
		if len(o) != n {
			return fault.New(fault.Invalid, "optimize: %d parameters but %d gradients or moments: they are of different models", n, len(o))
		}
	}
	return nil
}
