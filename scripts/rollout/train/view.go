package train

import (
	"fmt"
	"io"
	"strings"
	"time"

	"rollout/gpuworker/training"
	"rollout/scripts/rollout/progress"
	"rollout/scripts/rollout/terminal"
	"rollout/shared/clock"
	"rollout/shared/figures"
)

// View shows the progress of a training.
type View interface {
	// Update shows a step.
	Update(training.Report)
	// Close ends the view.
	Close()
}

// NewView returns a progress bar if w is a terminal that can draw it, and plain lines otherwise. taken
// is the number of steps already taken, all the total number of steps.
func NewView(w io.Writer, name string, taken, all int, c clock.Clock, colours terminal.Palette) View {
	m := meter{clock: c, began: c.Now(), from: taken}
	if terminal.SupportsDrawing(w) {
		return newBar(w, name, taken, all, m, colours)
	}
	return &lines{w: w, name: name, meter: m}
}

// meter computes the speed of a training.
type meter struct {
	clock  clock.Clock
	began  time.Time
	from   int // steps taken before began
	tokens int // tokens processed since began
}

// facts returns what is known after a step: "120 of 1,000 steps", "loss 2.3456", "4,512 tokens/s", "ETA 3m05s".
func (m *meter) facts(r training.Report) []string {
	m.tokens += r.Tokens
	facts := []string{figures.Count(r.Step) + " of " + figures.Of(r.Steps, "step"), fmt.Sprintf("loss %.4f", r.Loss)}
	spent := m.clock.Now().Sub(m.began).Seconds()
	if spent <= 0 {
		return facts
	}
	rate := float64(m.tokens) / spent
	facts = append(facts, progress.FormatTokenRate(&rate))
	if r.Step < r.Steps {
		left := spent / float64(r.Step-m.from) * float64(r.Steps-r.Step)
		facts = append(facts, "ETA "+progress.FormatETA(&left))
	}
	return facts
}

// bar is a View with a progress bar.
type bar struct {
	*terminal.Progress
	name  string
	meter meter
	next  time.Time // when it is drawn next
}

// redrawEvery is the minimum time between two drawings.
const redrawEvery = 100 * time.Millisecond

func newBar(w io.Writer, name string, taken, all int, m meter, colours terminal.Palette) *bar {
	b := &bar{Progress: terminal.NewProgress(w, colours), name: name, meter: m}
	b.Show(terminal.Task{Name: name, Done: uint64(taken), All: uint64(all)})
	return b
}

func (b *bar) Update(r training.Report) {
	facts := b.meter.facts(r)
	if now := b.meter.clock.Now(); r.Step == r.Steps || !now.Before(b.next) {
		b.next = now.Add(redrawEvery)
		b.Show(terminal.Task{Name: b.name, Done: uint64(r.Step), All: uint64(r.Steps), Facts: facts})
	}
}

// lineEvery is the minimum time between two plain lines.
const lineEvery = 5 * time.Second

// lines is a View with plain lines.
type lines struct {
	w     io.Writer
	name  string
	meter meter
	next  time.Time
}

func (l *lines) Update(r training.Report) {
	facts := l.meter.facts(r)
	if now := l.meter.clock.Now(); r.Step == r.Steps || !now.Before(l.next) {
		l.next = now.Add(lineEvery)
		// A failed write is ignored: training continues without a progress display.
		_, _ = fmt.Fprintf(l.w, "%s %s\n", l.name, strings.Join(facts, ", "))
	}
}

func (l *lines) Close() {}
