package training

import (
	"math"

	"rollout/gpuworker/tinylm/kernel"
	"rollout/gpuworker/tinylm/optimize"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// optimizer turns gradients into a step. Weights decay; gains of norms, which have
// one axis, do not.
type optimizer struct {
	on       optimize.Compute
	schedule optimize.Schedule
	sgd      optimize.SGD
	adam     optimize.AdamW
	moments  bool // AdamW's
	limit    float64
	parts    []part
}

// part is a tensor with all that belongs to it.
type part struct {
	name                 string
	shape                []int
	parameters, gradient []float32
	first, second        []float32 // moments; nil if the optimizer has none
	decays               bool
}

// scoreName is Hugging Face's name of a reward model's head.
const scoreName = "score.weight"

func newOptimizer(t *Trainer, on optimize.Compute) (optimizer, error) {
	o := t.settings.Optimizer
	u := optimizer{on: on, limit: o.MaxGradNorm, moments: o.Kind == config.OptimizerAdamW,
		sgd: optimize.SGD{WeightDecay: o.WeightDecay},
		// The floor would be reached a step after the last.
		schedule: optimize.Schedule{Shape: optimize.Shape(o.Schedule), Peak: o.LR, Warmup: o.WarmupSteps, Total: t.settings.Budget.MaxSteps + 1}}
	err := u.schedule.Validate()
	if u.moments {
		u.adam = optimize.AdamW{Beta1: o.Betas[0], Beta2: o.Betas[1], Epsilon: o.Eps, WeightDecay: o.WeightDecay}
		if err == nil {
			err = u.adam.Validate()
		}
	}
	gradients := t.gradients.Tensors()
	for i, p := range t.model.Tensors() {
		u.add(part{name: p.Name, shape: p.Shape, parameters: p.Data, gradient: gradients[i].Data, decays: len(p.Shape) > 1})
	}
	if h := t.head; h != nil {
		u.add(part{name: scoreName, shape: []int{1, len(h.score)}, parameters: h.score, gradient: h.gradient, decays: true})
	}
	return u, err
}

func (u *optimizer) add(p part) {
	if u.moments {
		p.first, p.second = make([]float32, len(p.parameters)), make([]float32, len(p.parameters))
	}
	u.parts = append(u.parts, p)
}

// apply takes the step of the number, from 1, with the gradients times scale.
// A norm of them that is no finite number is Corrupt, and changes nothing.
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

// newCompute says what a training runs on.
func newCompute(o Options) optimize.Compute {
	on := optimize.Compute{Kernels: kernel.Best(), Threads: max(1, o.Threads)}
	if o.Scalar {
		on.Kernels = kernel.Scalar()
	}
	return on
}
