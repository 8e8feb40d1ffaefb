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

// Validate faults (Invalid) on settings that can't be.
func (a AdamW) Validate() error {
	if !(a.Beta1 >= 0 && a.Beta1 < 1) || !(a.Beta2 >= 0 && a.Beta2 < 1) {
		return fault.New(fault.Invalid, "adamw: betas are %v and %v: both must be at least 0 and below 1", a.Beta1, a.Beta2)
	}
	if !(a.Epsilon > 0) || math.IsInf(a.Epsilon, 0) {
		return fault.New(fault.Invalid, "adamw: eps is %v: it must be above 0", a.Epsilon)
	}
	return validDecay(a.WeightDecay)
}

// Step changes parameters and both moments by one step: step counts from 1, and
// rate is that step's learning rate. All arrays have one length; moments start
// at zero. With m and v the moments, corrected for their start at zero,
//
//	p ← p − rate·WeightDecay·p − rate·m/(√v + Epsilon)
func (a AdamW) Step(on Compute, parameters, gradients, first, second []float32, step int, rate float64) error {
	if err := sameLength(len(parameters), gradients, first, second); err != nil {
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
	on.each(len(parameters), func(i, j int) {
		on.Kernels.AdamStep(parameters[i:j], gradients[i:j], first[i:j], second[i:j], f)
	})
	return nil
}

func validDecay(d float64) error {
	if !(d >= 0) || math.IsInf(d, 0) {
		return fault.New(fault.Invalid, "optimize: weight decay is %v: it must be a number from 0", d)
	}
	return nil
}
