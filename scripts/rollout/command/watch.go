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
	"rollout/functions/status"
	"rollout/scripts/rollout/progress"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
)

// watchEvery is how often a watched view is drawn, at most.
const watchEvery = time.Second

// watcher shows runs again and again, until they have ended.
type watcher struct {
	*statusView
	meters map[identity.RunID]*progress.RateEstimator
	open   map[identity.RunID]bool // seen before they ended
	ended  []status.Status         // of those, in the order of their ends

	drawn map[identity.RunID]string        // JSON: the facts of each as last written
	lines map[identity.RunID]progress.View // plain text: a view each
	held  map[identity.RunID]string        // and what holds it up, as last written
	above int                              // terminal: lines of the last drawing
	looks int                              // that had an answer
	away  bool                             // the last one had none, which was said
}

func newWatcher(s *statusView) *watcher {
	return &watcher{statusView: s, meters: map[identity.RunID]*progress.RateEstimator{}, open: map[identity.RunID]bool{},
		drawn: map[identity.RunID]string{}, lines: map[identity.RunID]progress.View{}, held: map[identity.RunID]string{}}
}

// watch draws, again and again, until every run that it shows has ended: the
// outcome of those that it saw going on is then its own. When ctx ends, the
// runs go on, and that is no error. So it is if they can't be asked after for a
// while: who watches for a night has a network that fails for a minute.
func (w *watcher) watch(ctx context.Context, every time.Duration) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		o, err := w.ask(ctx)
		if ctx.Err() != nil {
			return nil
		}
		switch {
		case err == nil:
			if over, err := w.show(o); err != nil || over {
				return err
			}
		case w.looks == 0 || !fault.Retriable(err):
			return err
		default:
			w.silence(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// show draws; over reports that all has ended, and then err is what came of it.
func (w *watcher) show(o api.Overview) (over bool, err error) {
	w.looks, w.away = w.looks+1, false
	if err := w.draw(o); err != nil {
		return false, err
	}
	if w.over(o.Runs) {
		return true, w.outcome(o.Runs)
	}
	return false, nil
}

// silence says that there is no answer, once for each time that there is none.
func (w *watcher) silence(err error) {
	if w.away {
		return
	}
	w.away, w.above = true, 0                                                  // what is drawn next stands below it
	_, _ = fmt.Fprintf(w.Err, "%v; it is asked again until it answers\n", err) // whoever can't read it sees that nothing moves
}

// over reports whether no run goes on.
func (w *watcher) over(runs []status.Status) bool {
	over := true
	for _, r := range runs {
		switch {
		case !r.Phase.Ended():
			w.open[r.Run], over = true, false
		case w.open[r.Run]:
			delete(w.open, r.Run)
			w.ended = append(w.ended, r)
		}
	}
	return over
}

// outcome is what came of the runs: of the one that was asked for, or of all
// that ended meanwhile.
func (w *watcher) outcome(runs []status.Status) error {
	of := w.ended
	if w.only != "" {
		of = runs
	}
	var unwell []error
	for _, r := range of {
		unwell = append(unwell, progress.Outcome(r, w.path))
	}
	return errors.Join(unwell...)
}

func (w *watcher) draw(o api.Overview) error {
	switch {
	case w.json:
		changed := slices.DeleteFunc(slices.Clone(o.Runs), func(r status.Status) bool { return !w.changed(o, r) })
		_, err := io.WriteString(w.Out, jsonLines(o, changed))
		return err
	case progress.SupportsANSI(w.Out):
		return w.redraw(o)
	}
	w.append(o)
	return nil
}

// changed reports whether there is more to say of the run than that time has
// passed.
func (w *watcher) changed(o api.Overview, r status.Status) bool {
	facts := r
	facts.Rate, facts.TokenRate, facts.ETASeconds, facts.LastRowAt, facts.Blockers = nil, nil, nil, nil, nil
	text := jsonLines(api.Overview{}, []status.Status{facts}) + codes(r)
	for _, k := range workersOf(o, r) {
		text += fmt.Sprintf("%s %v %s %s\n", k.Worker, k.Alive, k.State, k.Engine)
	}
	same := w.drawn[r.Run] == text
	w.drawn[r.Run] = text
	return !same
}

// codes are the kinds of what holds a run up: its words count seconds.
func codes(r status.Status) string {
	var b strings.Builder
	for _, h := range r.Blockers {
		b.WriteString(h.Code + " ")
	}
	return b.String()
}

// append writes a line for every run that moved, a few seconds apart, and one
// when something else holds it up.
func (w *watcher) append(o api.Overview) {
	for _, r := range slices.Backward(o.Runs) {
		v := w.lines[r.Run]
		if v == nil {
			v = progress.NewLines(w.Out, w.Clock)
			w.lines[r.Run] = v
		}
		v.Update(r, w.pace(r))
		if now := codes(r); now != w.held[r.Run] {
			w.held[r.Run] = now
			for _, h := range r.Blockers {
				v.Note(string(r.Run) + " " + withLocationFlags(progress.FormatBlocker(h), w.place))
			}
		}
	}
}

func (w *watcher) pace(r status.Status) progress.Pace {
	m := w.meters[r.Run]
	if m == nil {
		m = &progress.RateEstimator{}
		w.meters[r.Run] = m
	}
	return m.Add(r, w.Clock.Now())
}

// What makes a terminal draw over what it shows, without flicker.
const (
	lineUp     = "\x1b[%dA\r"
	clearLine  = "\x1b[K"
	clearBelow = "\x1b[J"
)

// redraw draws over the drawing before. What does not fit is left out: lines
// that scroll away could not be drawn over.
func (w *watcher) redraw(o api.Overview) error {
	paces := map[identity.RunID]progress.Pace{}
	for _, r := range o.Runs {
		paces[r.Run] = w.pace(r)
	}
	sc := w.screen(o, paces)
	sc.live = true
	lines := strings.Split(strings.TrimSuffix(sc.body(), "\n"), "\n")
	if notes := sc.notes(); len(notes) > 0 {
		lines = append(append(lines, ""), notes...)
	}
	if _, rows, ok := progress.TerminalSize(w.Out); ok && rows > 2 && len(lines) >= rows {
		lines = append(lines[:rows-2], fmt.Sprintf("… %d more lines: make the terminal larger, or name one run", len(lines)-rows+2))
	}
	var b strings.Builder
	if w.above > 0 {
		fmt.Fprintf(&b, lineUp, w.above)
	}
	for _, l := range lines {
		b.WriteString(sc.fit(l) + clearLine + "\n")
	}
	b.WriteString(clearBelow)
	w.above = len(lines)
	_, err := io.WriteString(w.Out, b.String())
	return err
}

// jsonLine is what `status --json` tells of a run: its status, and who works
// in its pool.
type jsonLine struct {
	status.Status
	Workers []status.WorkerStatus `json:"workers"`
	Queues  []status.QueueStatus  `json:"queues"`
}

func jsonLines(o api.Overview, runs []status.Status) string {
	var b strings.Builder
	for _, r := range runs {
		line, err := json.Marshal(jsonLine{r, workersOf(o, r), o.Queues})
		if err != nil { // statuses hold nothing that JSON can't
			continue
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	return b.String()
}

// workersOf are the workers of the run's pool.
func workersOf(o api.Overview, r status.Status) []status.WorkerStatus {
	out := []status.WorkerStatus{}
	for _, w := range o.Workers {
		if w.Pool == r.Pool {
			out = append(out, w)
		}
	}
	return out
}
