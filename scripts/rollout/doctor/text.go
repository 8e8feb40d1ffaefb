package doctor

import (
	"fmt"
	"io"
)

// TextPrinter writes results for people.
type TextPrinter struct {
	Out     io.Writer
	Colours bool
}

const (
	red   = "31"
	green = "32"
	dim   = "2"
)

// Result writes one result.
func (h TextPrinter) Result(r Result) error {
	mark := h.in(green, "✓")
	switch r.Status {
	case Fail:
		mark = h.in(red, "✗")
	case Skip:
		mark = h.in(dim, "–")
	}
	text := fmt.Sprintf("%s %-20s %7d ms", mark, r.Name, r.LatencyMS)
	if r.Found != "" {
		text += "  " + h.in(dim, r.Found)
	}
	switch {
	case r.Follows != "":
		text += "\n    " + r.Note + "\n    → first do what " + r.Follows + " says"
	case r.Note != "":
		text += "\n    not checked: " + r.Note
	}
	if r.wrong != "" {
		text += "\n    " + r.wrong
	}
	if r.Status == Fail && r.remedy != "" {
		text += "\n    → " + r.remedy
	}
	_, err := fmt.Fprintln(h.Out, text)
	return err
}

// Summary writes the last line.
func (h TextPrinter) Summary(s Summary) error {
	colour := green
	if s.Failed > 0 {
		colour = red
	}
	text := fmt.Sprintf("%d pass, %d fail", s.Passed, s.Failed)
	if s.Skipped > 0 {
		text += fmt.Sprintf(", %d skipped", s.Skipped)
	}
	text += fmt.Sprintf(" — total %d ms", s.TotalLatencyMS)
	_, err := fmt.Fprintln(h.Out, h.in(colour, text))
	return err
}

func (h TextPrinter) in(colour, text string) string {
	if !h.Colours {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}
