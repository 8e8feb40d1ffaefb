package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"rollout/functions/api"
	"rollout/functions/diagnosis"
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/input"
)

// watchInterval is the minimum time between two updates of a watched display.
const watchInterval = time.Second

// watcher shows runs repeatedly until they have ended.
type watcher struct {
	*statusView
	rates map[identity.RunID]*progress.RateEstimator
	open  map[identity.RunID]bool // runs that were seen before they ended
	ended []status.Status         // those of them that have ended, in the order of their ends

	drawn    map[identity.RunID]string        // JSON output: the facts of each run as last written
	lines    map[identity.RunID]progress.View // plain output: the view of each run
	blockers map[identity.RunID]string        // plain output: the codes of each run's blockers as last written
	drawing  bool                             // the output is a terminal
	display  *terminal.Display                // terminal output
	answered bool                             // at least one request succeeded
	failing  bool                             // the last request failed, and a line says so
}

func newWatcher(s *statusView) *watcher {
	return &watcher{
		statusView: s,
		rates:      map[identity.RunID]*progress.RateEstimator{},
		open:       map[identity.RunID]bool{},
		drawn:      map[identity.RunID]string{},
		lines:      map[identity.RunID]progress.View{},
		blockers:   map[identity.RunID]string{},
		drawing:    !s.json && terminal.SupportsANSI(s.Out),
		display:    terminal.NewDisplay(s.Out),
	}
}

// watch shows the runs at every interval until all of them have ended, and returns the outcome of the runs that ended
// meanwhile. When ctx ends it returns nil; the runs continue. After a first success it tries again after retriable
// errors, so that a watch over night survives a network outage.
func (w *watcher) watch(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		o, err := w.watched(ctx)
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err == nil:
			if done, err := w.show(o); err != nil || done {
				return err
			}
		case !w.answered || !fault.Retriable(err):
			return err
		default:
			w.noteFailure(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// watched is overview with all runs that ended since they were seen open, also those that the page of ended runs does
// not reach.
func (w *watcher) watched(ctx context.Context) (api.Overview, error) {
	o, err := w.overview(ctx)
	if err != nil {
		return o, err
	}
	for id := range w.open {
		if slices.ContainsFunc(o.Runs, func(r status.Status) bool { return r.Run == id }) {
			continue
		}
		r, err := w.service.Show(ctx, id)
		if err != nil {
			return o, err
		}
		o.Runs = append(o.Runs, r)
	}
	return o, nil
}

// show draws the overview. If done, all runs have ended and err is their outcome.
func (w *watcher) show(o api.Overview) (done bool, err error) {
	w.answered, w.failing = true, false
	if err := w.draw(o); err != nil {
		return false, err
	}
	if w.allEnded(o.Runs) && !w.awaitsFirst(o) && !w.awaitsUpload(o) {
		return true, w.outcome(o.Runs)
	}
	return false, nil
}

// noteFailure prints that a request failed, once for each outage.
func (w *watcher) noteFailure(err error) {
	if w.failing {
		return
	}
	w.failing = true
	w.display.Close() // the next drawing goes below the line
	_ = w.say("%v; retrying until it answers", err)
}

// allEnded records which runs are open and which ended, and reports whether all have ended.
func (w *watcher) allEnded(runs []status.Status) bool {
	all := true
	for _, r := range runs {
		switch {
		case !r.Phase.Ended():
			w.open[r.Run], all = true, false
		case w.open[r.Run]:
			delete(w.open, r.Run)
			w.ended = append(w.ended, r)
		}
	}
	return all
}

// awaitsFirst reports whether no run has begun yet, on a terminal, where a person waits for one.
func (w *watcher) awaitsFirst(o api.Overview) bool { return w.drawing && len(o.Runs) == 0 }

// awaitsUpload reports whether no run has begun yet, and a prompts file is to become one.
func (w *watcher) awaitsUpload(o api.Overview) bool {
	return len(o.Runs) == 0 && slices.ContainsFunc(o.Uploads, func(u api.Upload) bool { return input.IsPromptsKey(u.Key) })
}

// outcome returns the outcome of the watched run, or of all runs that ended meanwhile.
func (w *watcher) outcome(runs []status.Status) error {
	of := w.ended
	if w.only != "" {
		of = runs
	}
	var errs []error
	for _, r := range of {
		errs = append(errs, progress.OutcomeOfInstalled(r, w.path))
	}
	return errors.Join(errs...)
}

func (w *watcher) draw(o api.Overview) error {
	switch {
	case w.json:
		changed := slices.DeleteFunc(slices.Clone(o.Runs), func(r status.Status) bool { return !w.changed(o, r) })
		_, err := io.WriteString(w.Out, jsonLines(o, changed))
		return err
	case w.drawing:
		return w.redraw(o)
	}
	w.append(o)
	return nil
}

// changed reports whether more has changed about the run than values that depend on the time.
func (w *watcher) changed(o api.Overview, r status.Status) bool {
	facts := r
	facts.Rate, facts.TokenRate, facts.ETASeconds, facts.LastRowAt, facts.Blockers = nil, nil, nil, nil, nil
	text := jsonLines(api.Overview{}, []status.Status{facts}) + blockerCodes(r)
	for _, k := range workersOf(o, r) {
		text += fmt.Sprintf("%s %v %s %s\n", k.Worker, k.Alive, k.State, k.Engine)
	}
	same := w.drawn[r.Run] == text
	w.drawn[r.Run] = text
	return !same
}

// blockerCodes returns the codes of a run's blockers. Their texts would differ every second.
func blockerCodes(r status.Status) string {
	var b strings.Builder
	for _, blocker := range r.Blockers {
		b.WriteString(blocker.Code + " ")
	}
	return b.String()
}

// append writes a line every few seconds for each run that made progress, and a line when a run's blockers change.
func (w *watcher) append(o api.Overview) {
	for _, r := range slices.Backward(o.Runs) {
		v := w.lines[r.Run]
		if v == nil {
			v = progress.NewLines(w.Out, w.Clock)
			w.lines[r.Run] = v
		}
		v.Update(r, w.pace(r))
		if codes := blockerCodes(r); codes != w.blockers[r.Run] {
			w.blockers[r.Run] = codes
			for _, b := range r.Blockers {
				v.Note(string(r.Run) + " " + withLocationFlags(progress.FormatBlocker(b), w.location))
			}
		}
	}
}

func (w *watcher) pace(r status.Status) progress.Pace {
	rate := w.rates[r.Run]
	if rate == nil {
		rate = &progress.RateEstimator{}
		w.rates[r.Run] = rate
	}
	return rate.Add(r, w.Clock.Now())
}

// redraw draws over the previous drawing.
func (w *watcher) redraw(o api.Overview) error {
	paces := map[identity.RunID]progress.Pace{}
	for _, r := range o.Runs {
		paces[r.Run] = w.pace(r)
	}
	sc := w.screen(o, paces)
	sc.live, sc.watched = true, w.ended
	_, rows, _ := terminal.Size(w.Out)
	return w.display.Draw(sc.lines(rows))
}

// jsonLine is what `status --json` prints for each run: its status, the workers of its pools and their limits, and all
// queues. Of a run of trials alone, which has not ended, it also has the trials in flight.
type jsonLine struct {
	status.Status
	Workers []status.WorkerStatus `json:"workers"`
	Limits  []status.PoolLimit    `json:"limits"`
	Queues  []status.QueueStatus  `json:"queues"`

	Trials *diagnosis.TrialsInFlight `json:"trials,omitempty"`
}

func jsonLines(o api.Overview, runs []status.Status) string {
	var b strings.Builder
	for _, r := range runs {
		workers := workersOf(o, r)
		line, err := json.Marshal(jsonLine{r, workers, status.Limits(workers), o.Queues, o.Trials})
		if err != nil { // impossible: a status contains only types that JSON can encode
			continue
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}

// workersOf returns the workers of the run's pools. It is never nil.
func workersOf(o api.Overview, r status.Status) []status.WorkerStatus {
	out := []status.WorkerStatus{}
	for _, w := range o.Workers {
		if slices.Contains(r.Pools(), w.Pool) {
			out = append(out, w)
		}
	}
	return out
}
