package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"rollout/functions/api"
	"rollout/shared/clock"
)

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// SupportsANSI reports whether w is a terminal that takes colours and a cursor that
// moves: that of an editor, or of a log that calls itself one, prints them.
func SupportsANSI(w io.Writer) bool { return IsTerminal(w) && os.Getenv("TERM") != "dumb" }

// NewView returns a bar if w is a terminal that draws one, and plain lines otherwise.
func NewView(w io.Writer, c clock.Clock) View {
	if takesBars(w) {
		return newBar(w)
	}
	return NewLines(w, c)
}

// NewLines returns a view of plain lines.
func NewLines(w io.Writer, c clock.Clock) View { return &lines{w: w, clock: c} }

// TerminalSize is how many columns and lines the terminal w has; ok is false if w is
// none, or does not say.
func TerminalSize(w io.Writer) (columns, rows int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile {
		return 0, 0, false
	}
	columns, rows, err := term.GetSize(int(f.Fd()))
	return columns, rows, err == nil && columns > 0
}

// takesBars reports whether w draws, and says how wide it is: a bar on another
// terminal is not drawn at all.
func takesBars(w io.Writer) bool {
	_, _, ok := TerminalSize(w)
	return ok && SupportsANSI(w)
}

const (
	nameColumns = 24 // of a run's name beside a bar, at most
	barColumns  = 40 // of a bar, at most
	redraw      = 200 * time.Millisecond
)

// bar is a View on a terminal.
type bar struct {
	out       io.Writer
	container *mpb.Progress
	line      *mpb.Bar
	late      []string // notes on a bar that is full, which is not drawn again

	mu   sync.Mutex // the container renders on its own
	last api.Status
	pace Pace
}

func newBar(w io.Writer) *bar {
	b := &bar{out: w, container: mpb.New(mpb.WithOutput(w), mpb.WithAutoRefresh(), mpb.WithWidth(barColumns), mpb.WithRefreshRate(redraw))}
	show := func(f func(api.Status, Pace) string) decor.Decorator {
		return decor.Any(func(decor.Statistics) string {
			b.mu.Lock()
			defer b.mu.Unlock()
			return f(b.last, b.pace)
		}, decor.WC{C: decor.DextraSpace})
	}
	b.line = b.container.AddBar(0,
		mpb.PrependDecorators(show(func(s api.Status, _ Pace) string {
			if s.Run == "" {
				return "waiting"
			}
			return SanitizeLine(s.Name, nameColumns) + " " + FormatPhase(s.Phase)
		})),
		mpb.AppendDecorators(show(func(s api.Status, p Pace) string { return " " + tail(s, p) })),
	)
	return b
}

// tail is what stands behind a bar: "1,200/5,000 24% 3 failed 85.2/s ETA 45s".
func tail(s api.Status, p Pace) string {
	if s.Run == "" {
		return "" // nobody has taken it up yet
	}
	if s.Training != nil {
		return FormatTraining(s)
	}
	of := Count(s.Items.Total)
	if !s.Items.Planned && !s.Phase.Ended() {
		of += "+" // more may be planned
	}
	text := fmt.Sprintf("%s/%s %s", Count(s.Items.Processed()), of, Percent(s.Items.Processed(), s.Items.Total))
	if n := s.Items.AtFault(); n > 0 {
		text += " " + Count(n) + " failed"
	}
	if p.Rate != nil {
		text += " " + FormatRate(p.Rate)
	}
	if p.ETASeconds != nil {
		text += " ETA " + FormatETA(p.ETASeconds)
	}
	return text
}

func (b *bar) Update(s api.Status, p Pace) {
	b.mu.Lock()
	b.last, b.pace = s, p
	b.mu.Unlock()
	got, total := DoneAndTotal(s)
	// A bar that is full ends; it must not while more may come.
	b.line.SetTotal(int64(max(total, got))+1, false)
	b.line.SetCurrent(int64(got))
	if s.Phase.Ended() {
		b.line.SetTotal(int64(max(1, got)), true)
	}
}

func (b *bar) Note(text string) {
	text = SanitizeLine(text, 400)
	if b.last.Phase.Ended() {
		b.late = append(b.late, text)
		return
	}
	_, _ = fmt.Fprintln(b.container, text) // the terminal is gone: nobody to tell
}

func (b *bar) Close() {
	b.line.Abort(false) // nothing to a bar that is full
	b.container.Wait()
	for _, text := range b.late {
		_, _ = fmt.Fprintln(b.out, text) // as above
	}
}

// lineEvery is how often plain lines are written while the phase stays.
const lineEvery = 5 * time.Second

// lines is a View for files and pipes: a line every few seconds and at every
// change of phase.
type lines struct {
	w     io.Writer
	clock clock.Clock
	phase string
	next  time.Time
	shown string
}

func (l *lines) Update(s api.Status, p Pace) {
	now := l.clock.Now()
	text := tail(s, p)
	if FormatPhase(s.Phase) == l.phase && (now.Before(l.next) || text == l.shown) {
		return
	}
	l.phase, l.next, l.shown = FormatPhase(s.Phase), now.Add(lineEvery), text
	l.Note(fmt.Sprintf("%s %s %s", s.Run, l.phase, text))
}

func (l *lines) Note(text string) {
	_, _ = fmt.Fprintln(l.w, SanitizeLine(text, 1000)) // a log nobody can write to is no reason to stop
}

func (l *lines) Close() {}
