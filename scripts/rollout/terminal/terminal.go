// Package terminal draws on terminals: bars, tables and sentences that fit a width, colours, and a display that is
// redrawn below what is written meanwhile.
//
// Text comes in from callers, who sanitize what is not theirs, and leaves as lines. The package knows nothing about
// runs, never asks for the time, and writes only what it was given to draw.
package terminal

import (
	"io"
	"os"

	"golang.org/x/term"
)

// Is reports whether w is a terminal.
func Is(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// SupportsANSI reports whether w is a terminal that interprets ANSI escape sequences. A dumb terminal, such as an
// editor's, prints them as text.
func SupportsANSI(w io.Writer) bool { return Is(w) && os.Getenv("TERM") != "dumb" }

// SupportsDrawing reports whether w is a terminal that can be drawn on: one that supports ANSI sequences and has a
// known size.
func SupportsDrawing(w io.Writer) bool {
	_, _, ok := Size(w)
	return ok && SupportsANSI(w)
}

// Size returns the columns and rows of the terminal w. ok is false if w is not a terminal or its size is unknown.
func Size(w io.Writer) (columns, rows int, ok bool) {
	f, isFile := w.(*os.File)
	if !isFile {
		return 0, 0, false
	}
	columns, rows, err := term.GetSize(int(f.Fd()))
	return columns, rows, err == nil && columns > 0
}

// Columns returns the width of the terminal w, or 0, which stands for any width, if w is not a terminal.
func Columns(w io.Writer) int {
	columns, _, ok := Size(w)
	if !ok {
		return 0
	}
	return columns
}

// Palette colours text if it is true, and leaves it unchanged if it is false.
type Palette bool

// The colours and styles of a Palette.
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Cyan   = "36"
	Bold   = "1"
)

// In returns the text in the colour.
func (p Palette) In(colour, text string) string {
	if !p {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
