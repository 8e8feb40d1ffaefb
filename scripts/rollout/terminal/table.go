package terminal

import (
	"strings"

	"github.com/mattn/go-runewidth"
)

// Table formats rows in aligned columns. The first row is the header. colour may colour a padded cell.
func Table(rows [][]string, colours Palette, colour func(row, column int, cell string) string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], runewidth.StringWidth(cell))
		}
	}
	var b strings.Builder
	for n, row := range rows {
		for i, cell := range row {
			if i < len(row)-1 {
				cell = runewidth.FillRight(cell, widths[i])
			}
			if n == 0 {
				cell = colours.In(Bold, cell)
			} else {
				cell = colour(n, i, cell)
			}
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(cell)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// Widest returns the width of the longest line of a text, without its colours.
func Widest(text string) (n int) {
	for line := range strings.Lines(text) {
		n = max(n, Width(strings.TrimSuffix(line, "\n")))
	}
	return n
}
