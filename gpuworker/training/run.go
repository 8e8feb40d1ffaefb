package training

import (
	"context"
)

// Hooks are what Run calls between two steps. Nil ones are not called.
type Hooks struct {
	// Progress is told each step.
	Progress func(Report)
	// Save may keep the trainer's state (see Save); an error ends the run. It
	// is called after every so many steps, after the last step, and when Stop
	// asked, but never twice for the same step.
	Save func(ctx context.Context, t *Trainer) error
	// Stop ends the run at the next border of steps when it is closed.
	Stop <-chan struct{}
}

// Run takes steps until all are taken, Stop asks, or ctx ends: then it gives up
// the step that it is in and keeps nothing. every is how many steps lie between
// two calls of Keep; 0 is only at the end. done says that all steps are taken.
func (t *Trainer) Run(ctx context.Context, every int, h Hooks) (done bool, err error) {
	kept := -1 // a training that was gone on with, at its end: it is kept again, which changes nothing
	keep := func() error {
		if h.Save == nil || kept == t.step {
			return nil
		}
		kept = t.step
		return h.Save(ctx, t)
	}
	for !t.Done() {
		if stopped(h.Stop) {
			return false, keep()
		}
		r, err := t.Step(ctx)
		if err != nil {
			return false, err
		}
		if h.Progress != nil {
			h.Progress(r)
		}
		if every > 0 && t.step%every == 0 && !t.Done() {
			if err := keep(); err != nil {
				return false, err
			}
		}
	}
	return true, keep()
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
