package command

import (
	"context"
	"io"
	"sync"
	"time"

	"rollout/functions/api"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/cloud"
	"rollout/shared/installation"
)

// idleInterval is the time between two drawings of `up` while no run is open: each reads the state.
const idleInterval = 5 * time.Second

// upDisplay returns where `up` draws its runs, below its log lines, and an environment that logs above them. Both are
// the plain ones, without a display, if standard error is no terminal, and with --once, which shows its own progress.
func (e *Env) upDisplay(f upFlags) (*terminal.Display, *Env) {
	if f.once || !terminal.SupportsDrawing(e.Err) {
		return nil, e
	}
	d := terminal.NewDisplay(e.Err)
	above := *e
	above.Err = d.Writer()
	if terminal.Is(e.Out) { // events
		above.Out = d.Writer()
	}
	return d, &above
}

// workerOutput returns the streams of worker processes, above what the display draws; nil without a display.
func (e *Env) workerOutput(d *terminal.Display) func() (stdout, stderr io.Writer) {
	if d == nil {
		return nil
	}
	return func() (stdout, stderr io.Writer) {
		if terminal.Is(e.Out) { // events
			stdout = d.Writer()
		}
		return stdout, d.Writer()
	}
}

// lastDrawing bounds how long the end of `up` waits for what its last drawing shows.
const lastDrawing = 2 * time.Second

// drawUp draws the runs of the installation until the returned function is called, which draws them for the last time.
// That drawing stays.
func (e *Env) drawUp(ctx context.Context, p *prepared, d *terminal.Display) (stop func()) {
	if d == nil {
		return func() {}
	}
	onTerminal := *e
	onTerminal.Out = e.Err
	w := newWatcher(&statusView{Env: &onTerminal, service: api.New(p.Ports, p.deployment, cloud.OneMachine()),
		page:     status.Page{Limit: endedShown},
		location: installation.Location{Dir: p.Dir}, path: progress.ObjectPathIn(installation.BucketDir(p.Dir))})
	w.display = d
	until, cancel := context.WithCancel(ctx)
	var drawing sync.WaitGroup
	drawing.Go(func() { w.drawRepeatedly(until) })
	return func() {
		cancel()
		drawing.Wait()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastDrawing)
		defer cancel()
		if o, err := w.watched(last); err == nil {
			_ = w.redraw(o) // a terminal that is gone shows nothing
		}
		d.Close()
	}
}

// drawRepeatedly draws until ctx ends. What fails to be read is left as it was drawn: `up` itself says what fails.
func (w *watcher) drawRepeatedly(ctx context.Context) {
	for {
		every := idleInterval
		if o, err := w.watched(ctx); err == nil {
			if !w.allEnded(o.Runs) {
				every = watchInterval
			}
			if w.redraw(o) != nil {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}
