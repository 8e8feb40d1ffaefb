package optimize

import (
	"errors"
	"math"

	"rollout/gpuworker/tinylm/kernel"
	"rollout/shared/fault"
)

// Shape is how the learning rate changes after the warm-up.
type Shape string

// The supported shapes.
const (
	Constant Shape = "constant" // stays at the peak
	Linear   Shape = "linear"   // a straight line down to the floor
	Cosine   Shape = "cosine"   // half a wave down to the floor
)

// Schedule is the learning rate as a function of the step.
type Schedule struct {
	Shape  Shape
	Peak   float64
	Warmup int     // number of steps during which the rate rises linearly to the peak
	Total  int     // number of steps after which the rate is at the floor; unused with Constant
	Floor  float64 // final rate as a share of the peak, 0 to 1
}

// Validate returns one Invalid fault for each setting out of range, joined, or
// nil.
func (s Schedule) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fault.New(fault.Invalid, format, args...)) }
	switch s.Shape {
	case Constant:
	case Linear, Cosine:
		if s.Total <= s.Warmup {
			bad("schedule: %d steps with %d of warm-up: %s needs steps after the warm-up", s.Total, s.Warmup, s.Shape)
		}
	default:
		bad("schedule: unknown shape %q: use constant, linear or cosine", s.Shape)
	}
	if !(s.Peak > 0) || math.IsInf(s.Peak, 0) {
		bad("schedule: learning rate is %v: it must be a finite number above 0", s.Peak)
	}
	if s.Warmup < 0 {
		bad("schedule: %d steps of warm-up: it must be at least 0", s.Warmup)
	}
	if !(s.Floor >= 0 && s.Floor <= 1) {
		bad("schedule: floor is %v: it is a share of the learning rate, 0 to 1", s.Floor)
	}
	return errors.Join(errs...)
}

// Rate returns the learning rate of a step; steps count from 1. Warm-up step i
// of n has i/n of the peak. Steps after Total have the floor.
func (s Schedule) Rate(step int) float64 {
	if step <= s.Warmup {
		return float64(s.Peak * float64(max(step, 0)) / float64(s.Warmup))
	}
	left := 1.0
	if s.Shape != Constant {
		left = max(0, float64(s.Total-step)/float64(s.Total-s.Warmup))
	}
	if s.Shape == Cosine {
		_, cos := kernel.SinCos64(float64(math.Pi * (1 - left)))
		left = float64(0.5 * (1 + cos))
	}
	return float64(s.Peak * (s.Floor + float64((1-s.Floor)*left)))
}
