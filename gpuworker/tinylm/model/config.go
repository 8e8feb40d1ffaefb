package model

import (
	"errors"
	"math"

	"rollout/shared/fault"
)

// Config is the shape of a model.
type Config struct {
	Vocab    int // number of token ids
	Width    int // floats of the residual stream
	Layers   int
	Heads    int // each with its own keys and values
	HeadSize int // floats of one head; even
	Hidden   int // floats between gate and down projection
	Context  int // most positions of a sequence

	RopeBase    float32 // rotary frequencies are RopeBase^(-2i/HeadSize)
	NormEpsilon float32 // added to the mean square
}

// The largest shapes that are accepted: far beyond what runs well here, small
// enough that no product of two overflows.
const (
	maxSize       = 1 << 20
	maxLayers     = 1 << 10
	maxContext    = 1 << 16
	maxParameters = 1 << 31
)

// Validate names all that is wrong with a shape; faults are Invalid.
func (c Config) Validate() error {
	var errs []error
	size := func(name string, v, most int) {
		if v < 1 || v > most {
			errs = append(errs, fault.New(fault.Invalid, "model config: %s is %d: it must be 1 to %d", name, v, most))
		}
	}
	size("vocab", c.Vocab, maxSize)
	size("width", c.Width, maxSize)
	size("layers", c.Layers, maxLayers)
	size("heads", c.Heads, maxLayers)
	size("head size", c.HeadSize, maxLayers)
	size("hidden", c.Hidden, maxSize)
	size("context", c.Context, maxContext)
	if c.HeadSize%2 != 0 {
		errs = append(errs, fault.New(fault.Invalid, "model config: head size is %d: rotary positions need an even one", c.HeadSize))
	}
	if !(c.RopeBase > 1) || math.IsInf(float64(c.RopeBase), 0) {
		errs = append(errs, fault.New(fault.Invalid, "model config: rope base is %v: it must be a number above 1", c.RopeBase))
	}
	if !(c.NormEpsilon > 0) || c.NormEpsilon > 1 {
		errs = append(errs, fault.New(fault.Invalid, "model config: norm epsilon is %v: it must be above 0 and at most 1", c.NormEpsilon))
	}
	if len(errs) == 0 && c.Parameters() > maxParameters {
		errs = append(errs, fault.New(fault.Invalid, "model config: %d parameters are more than the %d that fit here", c.Parameters(), maxParameters))
	}
	return errors.Join(errs...)
}

// Parameters is the number of floats of a model of this shape.
func (c Config) Parameters() int {
	attention := c.Heads * c.HeadSize
	layer := 2*c.Width + 4*attention*c.Width + 3*c.Hidden*c.Width
	return c.Vocab*c.Width + c.Layers*layer + c.Width
}
