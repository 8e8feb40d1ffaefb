package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"rollout/functions/status"
	"rollout/shared/clock"
)

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// SupportsANSI reports whether w is a terminal that interprets ANSI escape sequences. A dumb terminal, such as an
// editor's, prints them as text.
func SupportsANSI(w io.Writer) bool { return IsTerminal(w) && os.Getenv("TERM") != "dumb" }

// NewView returns a View with a bar if w is a terminal that can draw it, else a View of plain lines.
func NewView(w io.Writer, c clock.Clock) View {
	if SupportsBars(w) {
		return newBar(w)
	}
	return NewLines(w, c)
}

// NewLines returns a View of plain lines.
func NewLines(w io.Writer, c clock.Clock) View { return &lines{w: w, clock: c} }

// TerminalSize returns the columns and rows of the terminal w. ok is false if w is not a terminal or its size is
// unknown.
func TerminalSize(w io.Writer) (columns, rows int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile {
		return 0, 0, false
	}
	columns, rows, err := term.GetSize(int(f.Fd()))
	return columns, rows, err == nil && columns > 0
}

// bar is a View with a bar on a terminal.
type bar struct {
	*Bar
	out  io.Writer
	late []string // notes that came after the bar was full: mpb does not draw them, so Close prints them

	mu   sync.Mutex // guards last and pace, which the bar's goroutine reads
	last status.Status
	pace Pace
}

func newBar(w io.Writer) *bar {
	b := &bar{out: w}
	current := func() (status.Status, Pace) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.last, b.pace
	}
	b.Bar = NewBar(w, func() string {
		s, _ := current()
		if s.Run == "" {
			return "waiting"
		}
		return SanitizeLine(s.Name, nameColumns) + " " + FormatPhase(s.Phase)
	}, func() string { return formatStatus(current()) })
	return b
}

// formatStatus formats counts and pace: "1,200/5,000 24% 3 failed 85.2/s ETA 45s". It returns "" before the run starts.
func formatStatus(s status.Status, p Pace) string {
	if s.Run == "" {
		return ""
	}
	if s.Training != nil {
		return FormatTraining(s)
	}
	of := Count(s.Items.Total)
	if !s.Items.Planned && !s.Phase.Ended() && len(s.Roles) == 0 {
		of += "+" // planning continues
	}
	text := fmt.Sprintf("%s/%s %s", Count(s.Items.Processed()), of, Percent(s.Items.Processed(), s.Items.Total))
	if n := s.Items.AtFault(); n > 0 {
		text += " " + Count(n) + " failed"
	}
	if r := s.Rollout; r != nil && r.Batch > 0 {
		text += fmt.Sprintf(" batch %d/%d", r.Batch, r.Batches)
		if r.Stage != "" && r.Stage != "answer" {
			text += " " + r.Stage
		}
	} else if judged, of := judged(s); of > 0 && r == nil {
		text += fmt.Sprintf(" judged %s/%s", Count(judged), Count(of))
	}
	if p.Rate != nil {
		text += " " + FormatRate(p.Rate)
	}
	if p.ETASeconds != nil {
		text += " ETA " + FormatETA(p.ETASeconds)
	}
	return text
}

func (b *bar) Update(s status.Status, p Pace) {
	b.mu.Lock()
	b.last, b.pace = s, p
	b.mu.Unlock()
	done, total := DoneAndTotal(s)
	b.Set(done, total, s.Phase.Ended())
}

func (b *bar) Note(text string) {
	text = SanitizeLine(text, 400)
	if b.last.Phase.Ended() {
		b.late = append(b.late, text)
		return
	}
	b.Print(text)
}

func (b *bar) Close() {
	b.Bar.Close()
	for _, text := range b.late {
		_, _ = fmt.Fprintln(b.out, text) // fails only if the terminal is gone
	}
}

// lineInterval is the time between two lines while the phase does not change.
const lineInterval = 5 * time.Second

// lines is a View for files and pipes. It writes a line every few seconds and at every change of phase.
type lines struct {
	w     io.Writer
	clock clock.Clock
	phase string    // of the last line
	shown string    // text of the last line
	next  time.Time // earliest time of the next line in the same phase
}

func (l *lines) Update(s status.Status, p Pace) {
	now := l.clock.Now()
	text := formatStatus(s, p)
	if FormatPhase(s.Phase) == l.phase && (now.Before(l.next) || text == l.shown) {
		return
	}
	l.phase, l.next, l.shown = FormatPhase(s.Phase), now.Add(lineInterval), text
	l.Note(fmt.Sprintf("%s %s %s", s.Run, l.phase, text))
}

func (l *lines) Note(text string) {
	_, _ = fmt.Fprintln(l.w, SanitizeLine(text, 1000)) // the run continues even if its log cannot be written
}

func (l *lines) Close() {}
