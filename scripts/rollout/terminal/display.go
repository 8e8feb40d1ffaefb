package terminal

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
)

// ANSI sequences that redraw a terminal without flicker.
const (
	lineUp     = "\x1b[%dA"
	clearLine  = "\x1b[K"
	clearBelow = "\x1b[J"
)

// Display is the lower part of a terminal that is redrawn, with everything else that is written above it:
//
//	log lines, notes      ◀── Writer
//	bars, tables          ◀── Draw
//
// It is safe for concurrent use.
type Display struct {
	w io.Writer

	mu    sync.Mutex
	lines []string // as last drawn
}

// NewDisplay returns a display on a terminal.
func NewDisplay(w io.Writer) *Display { return &Display{w: w} }

// Writer returns a writer for one source of lines, which are written whole above what is drawn. A line is kept until
// its end comes, so that those of several sources do not mix.
func (d *Display) Writer() io.Writer { return &source{display: d} }

// source is one writer of a Display.
type source struct {
	display *Display
	mu      sync.Mutex
	partial []byte // a line whose end is still to come, at most maxPartial
}

// maxPartial is the longest beginning of a line that is kept.
const maxPartial = 64 << 10

// Write implements io.Writer.
func (s *source) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partial = append(s.partial, p...)
	end := bytes.LastIndexByte(s.partial, '\n') + 1
	if end == 0 && len(s.partial) > maxPartial {
		s.partial = append(s.partial, '\n')
		end = len(s.partial)
	}
	if end == 0 {
		return len(p), nil
	}
	err := s.display.write(s.partial[:end])
	s.partial = append(s.partial[:0], s.partial[end:]...)
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Columns returns the width of the terminal, or 80 if it is unknown.
func (d *Display) Columns() int {
	if columns := Columns(d.w); columns > 0 {
		return columns
	}
	return 80
}

// Draw replaces what is drawn by the lines, none of which may be wider than the terminal.
func (d *Display) Draw(lines []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.draw(nil, lines)
}

// write writes whole lines above what is drawn.
func (d *Display) write(lines []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.draw(lines, d.lines)
}

// Close leaves what is drawn on the terminal, whole: a ^C that the terminal echoed is gone. Later writes come below it.
func (d *Display) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.lines) > 0 {
		_ = d.draw(nil, d.lines) // a terminal that is gone shows nothing
	}
	d.lines = nil
}

// draw writes lines above what is drawn, and draws the lines below them. It begins in the first column, because a
// terminal echoes ^C behind the last line. A line is cleared before it is drawn: behind a line that is as wide as the
// terminal, clearing would take its last character.
func (d *Display) draw(above []byte, lines []string) error {
	var b strings.Builder
	b.WriteByte('\r')
	if rows := d.rows(); rows > 0 {
		fmt.Fprintf(&b, lineUp, rows)
	}
	if len(above) > 0 {
		b.WriteString(clearBelow)
		b.Write(above)
	}
	d.lines = lines
	for _, l := range lines {
		b.WriteString(clearLine + l + "\n")
	}
	b.WriteString(clearBelow)
	_, err := io.WriteString(d.w, b.String())
	return err
}

// rows returns how many rows of the terminal are drawn. A terminal that has become narrower shows a line in several.
func (d *Display) rows() (n int) {
	columns := Columns(d.w)
	for _, l := range d.lines {
		n++
		if width := Width(l); columns > 0 && width > columns {
			n += (width - 1) / columns
		}
	}
	return n
}

// Progress draws a task, below the lines that are printed meanwhile. It is safe for concurrent use.
type Progress struct {
	display *Display
	colours Palette
}

// NewProgress returns a Progress on a terminal that supports drawing.
func NewProgress(w io.Writer, colours Palette) *Progress { return &Progress{NewDisplay(w), colours} }

// Show draws the task in the place of what was drawn.
func (p *Progress) Show(t Task) {
	_ = p.display.Draw(t.Lines(p.display.Columns(), p.colours)) // a terminal that is gone shows nothing
}

// Print writes a text above the task.
func (p *Progress) Print(text string) {
	_ = p.display.write([]byte(Sentences(text, p.display.Columns()) + "\n")) // as in Show
}

// Close leaves what was shown last on the terminal.
func (p *Progress) Close() { p.display.Close() }
