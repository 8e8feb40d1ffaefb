package optimize

import "rollout/shared/fault"

// SGD is stochastic gradient descent, with optional momentum.
type SGD struct {
	Momentum    float64 // in [0, 1); 0: none
	WeightDecay float64 // WeightDecay·p is added to the gradient
}

// Validate returns an Invalid fault if a setting is out of range.
func (s SGD) Validate() error {
	if !(s.Momentum >= 0 && s.Momentum < 1) {
		return fault.New(fault.Invalid, "sgd: momentum is %v: it must be at least 0 and below 1", s.Momentum)
	}
	return validDecay(s.WeightDecay)
}

// Step updates the parameters by one step of the given learning rate. With
// momentum, it also updates velocity, which has the parameters' length and is
// zero before the first step; without momentum, it ignores velocity.
//
//	d = g + WeightDecay·p;  v ← Momentum·v + d;  p ← p − rate·v
func (s SGD) Step(on Compute, parameters, gradients, velocity []float32, rate float64) error {
	if err := sameLength(len(parameters), gradients); err != nil {
		return err
	}
	if s.Momentum != 0 {
		if err := sameLength(len(parameters), velocity); err != nil {
			return err
		}
	}
	decay, keep, r := float32(s.WeightDecay), float32(s.Momentum), float32(rate)
	on.each(len(parameters), func(from, to int) {
		for i := from; i < to; i++ {
			d := gradients[i] + float32(decay*parameters[i])
			if keep != 0 {
				d += float32(keep * velocity[i])
				velocity[i] = d
			}
			parameters[i] -= float32(r * d)
		}
	})
	return nil
}
