package train

import (
	"fmt"
	"io"
	"sync"
	"time"

	"rollout/gpuworker/training"
	"rollout/scripts/rollout/progress"
	"rollout/shared/clock"
)

// View shows the progress of a training.
type View interface {
	// Update shows a step.
	Update(training.Report)
	// Close ends the view.
	Close()
}

// NewView returns a progress bar if w is a terminal, and plain lines otherwise. taken
// is the number of steps already taken, all the total number of steps.
func NewView(w io.Writer, name string, taken, all int, c clock.Clock) View {
	m := meter{clock: c, began: c.Now(), from: taken}
	if progress.SupportsBars(w) {
		return newBar(w, name, taken, all, m)
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

// format returns a text such as "120/1,000 loss 2.3456 4,512 tokens/s ETA 3m05s".
func (m *meter) format(r training.Report) string {
	m.tokens += r.Tokens
	text := fmt.Sprintf("%s/%s loss %.4f", progress.Count(uint64(r.Step)), progress.Count(uint64(r.Steps)), r.Loss)
	spent := m.clock.Now().Sub(m.began).Seconds()
	if spent <= 0 {
		return text
	}
	rate := float64(m.tokens) / spent
	text += " " + progress.FormatTokenRate(&rate)
	if r.Step < r.Steps {
		left := spent / float64(r.Step-m.from) * float64(r.Steps-r.Step)
		text += " ETA " + progress.FormatETA(&left)
	}
	return text
}

// bar is a View with a progress bar.
type bar struct {
	*progress.Bar
	meter meter

	mu   sync.Mutex // guards text, which the bar's goroutine reads
	text string
}

func newBar(w io.Writer, name string, taken, all int, m meter) *bar {
	b := &bar{meter: m}
	b.Bar = progress.NewBar(w, func() string { return name }, func() string {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.text
	})
	b.Set(uint64(taken), uint64(all), false)
	return b
}

func (b *bar) Update(r training.Report) {
	text := b.meter.format(r)
	b.mu.Lock()
	b.text = text
	b.mu.Unlock()
	b.Set(uint64(r.Step), uint64(r.Steps), false)
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
	text := l.meter.format(r)
	if now := l.meter.clock.Now(); r.Step == r.Steps || !now.Before(l.next) {
		l.next = now.Add(lineEvery)
		_, _ = fmt.Fprintf(l.w, "%s %s\n", l.name, text) // ignored: training continues without a progress display
	}
}

func (l *lines) Close() {}
