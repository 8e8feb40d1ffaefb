package training

import (
	"math"

	"rollout/gpuworker/tinylm/kernel"
	"rollout/gpuworker/tinylm/optimize"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// optimizer updates the parameters from the gradients. Weight decay applies to
// matrices, not to the gains of norms.
type optimizer struct {
	on       optimize.Compute
	schedule optimize.Schedule
	sgd      optimize.SGD
	adam     optimize.AdamW
	moments  bool    // use adam, which has moments, instead of sgd
	limit    float64 // of the gradients' norm; 0: no clipping
	parts    []part
}

// part is one tensor of the model with its gradient and moments.
type part struct {
	name                 string
	shape                []int
	parameters, gradient []float32
	first, second        []float32 // moments; nil with SGD
	decays               bool      // weight decay applies
}

// scoreName is Hugging Face's tensor name of a reward model's score head.
const scoreName = "score.weight"

func newOptimizer(t *Trainer, on optimize.Compute) (optimizer, error) {
	o := t.settings.Optimizer
	u := optimizer{
		on: on, limit: o.MaxGradNorm, moments: o.Kind == config.OptimizerAdamW,
		sgd: optimize.SGD{WeightDecay: o.WeightDecay},
		schedule: optimize.Schedule{
			Shape: optimize.Shape(o.Schedule), Peak: o.LR, Warmup: o.WarmupSteps,
			Total: t.settings.Budget.MaxSteps + 1, // the last step's rate is still above the floor, 0
		},
	}
	err := u.schedule.Validate()
	if u.moments {
		u.adam = optimize.AdamW{Beta1: o.Betas[0], Beta2: o.Betas[1], Epsilon: o.Eps, WeightDecay: o.WeightDecay}
		if err == nil {
			err = u.adam.Validate()
		}
	}
	gradients := t.gradients.Tensors()
	for i, p := range t.model.Tensors() {
		u.add(part{
			name: p.Name, shape: p.Shape, parameters: p.Data, gradient: gradients[i].Data, decays: len(p.Shape) > 1,
		})
	}
	if h := t.head; h != nil {
		u.add(part{
			name: scoreName, shape: []int{1, len(h.score)}, parameters: h.score, gradient: h.gradient, decays: true,
		})
	}
	return u, err
}

func (u *optimizer) add(p part) {
	if u.moments {
		p.first, p.second = make([]float32, len(p.parameters)), make([]float32, len(p.parameters))
	}
	u.parts = append(u.parts, p)
}

// apply takes one step with the gradients times scale; step counts from 1. It
// returns the learning rate and the gradients' norm before clipping. If the norm is
// not finite, apply returns a Corrupt fault and leaves the parameters unchanged.
func (u *optimizer) apply(step int, scale float32) (rate, norm float64, err error) {
	squares := 0.0
	for _, p := range u.parts {
		u.on.Kernels.Scale(p.gradient, scale)
		n := optimize.Norm(u.on, p.gradient)
		squares += float64(n * n)
	}
	norm = math.Sqrt(squares)
	if norm-norm != 0 {
		return 0, norm, fault.New(fault.Corrupt, "the gradients' norm is %v", norm)
	}
	rate = u.schedule.Rate(step)
	for _, p := range u.parts {
		if u.limit > 0 && norm > u.limit {
			u.on.Kernels.Scale(p.gradient, float32(u.limit/norm))
		}
		if err := u.step(p, step, rate); err != nil {
			return 0, 0, err
		}
	}
	return rate, norm, nil
}

// step updates one tensor.
func (u *optimizer) step(p part, step int, rate float64) error {
	sgd, adam := u.sgd, u.adam
	if !p.decays {
		sgd.WeightDecay, adam.WeightDecay = 0, 0
	}
	if u.moments {
		state := optimize.AdamWState{Parameters: p.parameters, Gradients: p.gradient, First: p.first, Second: p.second}
		return adam.Step(u.on, state, step, rate)
	}
	return sgd.Step(u.on, p.parameters, p.gradient, nil, rate)
}

// newCompute returns how the steps of a training are computed.
func newCompute(o Options) optimize.Compute {
	on := optimize.Compute{Kernels: kernel.Best(), Threads: max(1, o.Threads)}
	if o.Scalar {
		on.Kernels = kernel.Scalar()
	}
	return on
}
