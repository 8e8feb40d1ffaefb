package pretrain

import (
	"errors"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/optimize"
	"rollout/shared/fault"
)

// Recipe contains all settings that determine the result, except the documents.
type Recipe struct {
	Width    int `json:"width"`
	Layers   int `json:"layers"`
	Heads    int `json:"heads"`
	HeadSize int `json:"head_size"`
	Hidden   int `json:"hidden"`
	Context  int `json:"context"` // the model's context, and the tokens of a training sequence

	Steps  int     `json:"steps"`
	Batch  int     `json:"batch"` // sequences per step
	Seed   uint64  `json:"seed"`
	Rate   float64 `json:"rate"`   // learning rate after the warm-up
	Warmup int     `json:"warmup"` // number of warm-up steps
	Floor  float64 `json:"floor"`  // final learning rate as a share of Rate
	Shape  string  `json:"shape"`  // of the learning rate's fall: cosine or linear
	Beta1  float64 `json:"beta1"`
	Beta2  float64 `json:"beta2"`
	Decay  float64 `json:"decay"` // weight decay of matrices; vectors do not decay
	Clip   float64 `json:"clip"`  // maximum norm of the gradients; 0: no clipping
}

// Config returns the shape of the model with a vocabulary of the given size.
func (r Recipe) Config(vocab int) model.Config {
	return model.Config{
		Vocab: vocab, Width: r.Width, Layers: r.Layers, Heads: r.Heads, HeadSize: r.HeadSize,
		Hidden: r.Hidden, Context: r.Context, RopeBase: 10000, NormEpsilon: 1e-5,
	}
}

func (r Recipe) schedule() optimize.Schedule {
	return optimize.Schedule{
		Shape: optimize.Shape(r.Shape), Peak: r.Rate, Warmup: r.Warmup, Total: r.Steps, Floor: r.Floor,
	}
}

func (r Recipe) adamW() optimize.AdamW {
	return optimize.AdamW{Beta1: r.Beta1, Beta2: r.Beta2, Epsilon: 1e-8, WeightDecay: r.Decay}
}

// Validate returns one Invalid fault for each setting out of range, joined, or nil.
// It does not check the model's shape, which New checks.
func (r Recipe) Validate() error {
	var errs []error
	if r.Steps < 1 {
		errs = append(errs, fault.New(fault.Invalid, "recipe: steps is %d: it must be at least 1", r.Steps))
	}
	if r.Batch < 1 || r.Batch > 1<<16 {
		errs = append(errs, fault.New(fault.Invalid, "recipe: batch is %d: it must be 1 to %d", r.Batch, 1<<16))
	}
	if !(r.Clip >= 0) {
		errs = append(errs, fault.New(fault.Invalid, "recipe: clip is %v: it must be at least 0", r.Clip))
	}
	return errors.Join(append(errs, r.schedule().Validate(), r.adamW().Validate())...)
}
