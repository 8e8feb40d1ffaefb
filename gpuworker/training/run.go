package training

import "context"

// Hooks are optional callbacks of Run.
type Hooks struct {
	// Progress is called after each step.
	Progress func(Report)
	// Save is called to save the trainer's state: at the interval that Run was
	// given, after the last step, and when Stop is closed. It is called at most
	// once for each step. If it returns an error, Run returns it.
	Save func(ctx context.Context, t *Trainer) error
	// Stop ends the run after the current step when it is closed.
	Stop <-chan struct{}
}

// Run takes steps until all are taken or h.Stop is closed. If ctx is canceled, Run
// abandons the current step and does not call h.Save. every is the number of steps
// between two calls of h.Save; 0 means only at the end. done is true if all steps
// have been taken.
func (t *Trainer) Run(ctx context.Context, every int, h Hooks) (done bool, err error) {
	saved := -1 // last saved step; a restored trainer that is done is saved again, with the same bytes
	save := func() error {
		if h.Save == nil || saved == t.step {
			return nil
		}
		saved = t.step
		return h.Save(ctx, t)
	}
	for !t.Done() {
		if stopped(h.Stop) {
			return false, save()
		}
		r, err := t.Step(ctx)
		if err != nil {
			return false, err
		}
		if h.Progress != nil {
			h.Progress(r)
		}
		if every > 0 && t.step%every == 0 && !t.Done() {
			if err := save(); err != nil {
				return false, err
			}
		}
	}
	return true, save()
}

func stopped(stop <-chan struct{}) bool {
	select {
	case <-stop:
		return true
	default:
		return false
	}
}
