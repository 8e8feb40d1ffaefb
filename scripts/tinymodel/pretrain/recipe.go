package pretrain

import (
	"errors"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/optimize"
	"rollout/shared/fault"
)

// Recipe is all that decides what is learnt, the documents apart.
type Recipe struct {
	Width    int `json:"width"`
	Layers   int `json:"layers"`
	Heads    int `json:"heads"`
	HeadSize int `json:"head_size"`
	Hidden   int `json:"hidden"`
	Context  int `json:"context"` // tokens of a sequence, in training too

	Steps  int     `json:"steps"`
	Batch  int     `json:"batch"` // sequences of a step
	Seed   uint64  `json:"seed"`
	Rate   float64 `json:"rate"`   // learning rate after the warm-up; it falls to Floor times that
	Warmup int     `json:"warmup"` // steps
	Floor  float64 `json:"floor"`
	Shape  string  `json:"shape"` // of the fall: cosine or linear
	Beta1  float64 `json:"beta1"`
	Beta2  float64 `json:"beta2"`
	Decay  float64 `json:"decay"` // of matrices; vectors don't decay
	Clip   float64 `json:"clip"`  // most of the gradients' norm
}

// Config is the shape of the model for a vocabulary.
func (r Recipe) Config(vocab int) model.Config {
	return model.Config{
		Vocab: vocab, Width: r.Width, Layers: r.Layers, Heads: r.Heads, HeadSize: r.HeadSize,
		Hidden: r.Hidden, Context: r.Context, RopeBase: 10000, NormEpsilon: 1e-5,
	}
}

func (r Recipe) schedule() optimize.Schedule {
	return optimize.Schedule{Shape: optimize.Shape(r.Shape), Peak: r.Rate, Warmup: r.Warmup, Total: r.Steps, Floor: r.Floor}
}

func (r Recipe) adamW() optimize.AdamW {
	return optimize.AdamW{Beta1: r.Beta1, Beta2: r.Beta2, Epsilon: 1e-8, WeightDecay: r.Decay}
}

// Validate names all that is wrong with the recipe, apart from the model's
// shape; faults are Invalid.
func (r Recipe) Validate() error {
	var errs []error
	if r.Steps < 1 {
		errs = append(errs, fault.New(fault.Invalid, "recipe: %d steps: it takes at least one", r.Steps))
	}
	if r.Batch < 1 || r.Batch > 1<<16 {
		errs = append(errs, fault.New(fault.Invalid, "recipe: a batch of %d sequences: it must be 1 to %d", r.Batch, 1<<16))
	}
	if !(r.Clip >= 0) {
		errs = append(errs, fault.New(fault.Invalid, "recipe: clipping at a norm of %v: it must be a number from 0", r.Clip))
	}
	return errors.Join(append(errs, r.schedule().Validate(), r.adamW().Validate())...)
}
