package command

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

// display is the lower part of a terminal that is redrawn, with everything else that is written above it:
//
//	log lines, notes      ◀── Write
//	tables                ◀── Draw
//
// It is safe for concurrent use.
type display struct {
	w io.Writer

	mu      sync.Mutex
	lines   []string // as last drawn
	partial []byte   // a line whose end is still to come
}

// Draw replaces what is drawn by the lines, none of which may be wider than the terminal.
func (d *display) Draw(lines []string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	d.up(&b)
	d.lines = lines
	d.down(&b)
	_, err := io.WriteString(d.w, b.String())
	return err
}

// Write writes whole lines above what is drawn. It keeps a line until its end comes.
func (d *display) Write(p []byte) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.partial = append(d.partial, p...)
	end := bytes.LastIndexByte(d.partial, '\n') + 1
	if end == 0 {
		return len(p), nil
	}
	var b strings.Builder
	d.up(&b)
	b.WriteString(clearBelow)
	b.Write(d.partial[:end])
	d.down(&b)
	d.partial = append(d.partial[:0], d.partial[end:]...)
	if _, err := io.WriteString(d.w, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close leaves what is drawn on the terminal. Later writes come below it.
func (d *display) Close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = nil
}

// up moves to the first drawn line. It begins in the first column, because a terminal echoes ^C behind the last line.
func (d *display) up(b *strings.Builder) {
	b.WriteByte('\r')
	if len(d.lines) > 0 {
		fmt.Fprintf(b, lineUp, len(d.lines))
	}
}

// down draws the lines and clears what is left below them.
func (d *display) down(b *strings.Builder) {
	for _, l := range d.lines {
		b.WriteString(l + clearLine + "\n")
	}
	b.WriteString(clearBelow)
}
