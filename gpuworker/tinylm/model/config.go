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
	Context  int // maximum number of positions of a sequence

	RopeBase    float32 // rotary frequencies are RopeBase^(-2i/HeadSize)
	NormEpsilon float32 // added to the mean square
}

// The limits of shapes. They exceed what runs fast on a CPU, and are small
// enough that the product of two sizes cannot overflow.
const (
	maxSize       = 1 << 20
	maxLayers     = 1 << 10
	maxContext    = 1 << 16
	maxParameters = 1 << 31
)

// Validate returns one Invalid fault for each wrong field, joined, or nil.
func (c Config) Validate() error {
	var errs []error
	invalid := func(format string, args ...any) {
		errs = append(errs, fault.New(fault.Invalid, "model config: "+format, args...))
	}
	size := func(name string, v, most int) {
		if v < 1 || v > most {
			invalid("%s is %d: it must be 1 to %d", name, v, most)
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
		invalid("head size is %d: rotary positions need an even one", c.HeadSize)
	}
	if !(c.RopeBase > 1) || math.IsInf(float64(c.RopeBase), 0) {
		invalid("rope base is %v: it must be a number above 1", c.RopeBase)
	}
	if !(c.NormEpsilon > 0) || c.NormEpsilon > 1 {
		invalid("norm epsilon is %v: it must be above 0 and at most 1", c.NormEpsilon)
	}
	if len(errs) == 0 && c.Parameters() > maxParameters {
		invalid("the shape has %d parameters: the maximum is %d", c.Parameters(), maxParameters)
	}
	return errors.Join(errs...)
}

// Parameters returns the number of parameters of a model of this shape.
func (c Config) Parameters() int {
	attention := c.Heads * c.HeadSize
	layer := 2*c.Width + 4*attention*c.Width + 3*c.Hidden*c.Width
	return c.Vocab*c.Width + c.Layers*layer + c.Width
}
