package optimize

import (
	"math"

	"rollout/gpuworker/tinylm/kernel"
	"rollout/shared/fault"
)

// AdamW is Adam with decoupled weight decay (Loshchilov and Hutter 2019).
type AdamW struct {
	Beta1, Beta2 float64 // decay of the two moments, in [0, 1)
	Epsilon      float64
	WeightDecay  float64
}

// Validate returns an Invalid fault if a setting is out of range.
func (a AdamW) Validate() error {
	if !(a.Beta1 >= 0 && a.Beta1 < 1) || !(a.Beta2 >= 0 && a.Beta2 < 1) {
		return fault.New(fault.Invalid, "adamw: betas are %v and %v: both must be at least 0 and below 1",
			a.Beta1, a.Beta2)
	}
	if !(a.Epsilon > 0) || math.IsInf(a.Epsilon, 0) {
		return fault.New(fault.Invalid, "adamw: eps is %v: it must be above 0", a.Epsilon)
	}
	return validDecay(a.WeightDecay)
}

// AdamWState holds the arrays of a step, all of one length.
type AdamWState struct {
	Parameters, Gradients []float32
	First, Second         []float32 // moments; zero before the first step
}

// Step updates the parameters and both moments of s by one step. step counts
// from 1; rate is the learning rate of that step. With m and v the moments after
// bias correction:
//
//	p ← p − rate·WeightDecay·p − rate·m/(√v + Epsilon)
func (a AdamW) Step(on Compute, s AdamWState, step int, rate float64) error {
	if err := sameLength(len(s.Parameters), s.Gradients, s.First, s.Second); err != nil {
		return err
	}
	if step < 1 {
		return fault.New(fault.Invalid, "adamw: step %d: steps count from 1", step)
	}
	corrected1 := 1 - kernel.Pow64(a.Beta1, float64(step))
	corrected2 := 1 - kernel.Pow64(a.Beta2, float64(step))
	f := kernel.Adam{
		Beta1: float32(a.Beta1), Rest1: float32(1 - a.Beta1),
		Beta2: float32(a.Beta2), Rest2: float32(1 - a.Beta2),
		Keep:    float32(1 - float64(rate*a.WeightDecay)),
		Rate:    float32(rate / corrected1),
		Root:    float32(1 / math.Sqrt(corrected2)),
		Epsilon: float32(a.Epsilon),
	}
	on.each(len(s.Parameters), func(i, j int) {
		on.Kernels.AdamStep(s.Parameters[i:j], s.Gradients[i:j], s.First[i:j], s.Second[i:j], f)
	})
	return nil
}

func validDecay(d float64) error {
	if !(d >= 0) || math.IsInf(d, 0) {
		return fault.New(fault.Invalid, "optimize: weight decay is %v: it must be a finite number of at least 0", d)
	}
	return nil
}
