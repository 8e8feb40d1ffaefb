package terminal

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/mattn/go-runewidth"
)

// Width returns the columns that a line takes. Its colours take none.
func Width(line string) int { return runewidth.StringWidth(Plain(line)) }

// Plain removes the sequences that a Palette adds.
func Plain(line string) string {
	for {
		before, rest, ok := strings.Cut(line, "\x1b[")
		if !ok {
			return line
		}
		_, after, _ := strings.Cut(rest, "m")
		line = before + after
	}
}

// Fit truncates a line to that many columns; 0 is any number. A truncated line has no colours.
func Fit(line string, columns int) string {
	if columns == 0 || Width(line) <= columns {
		return line
	}
	return runewidth.Truncate(Plain(line), columns, "…")
}

// Shorten shortens a name in its middle, because names often differ only at their ends.
func Shorten(name string, columns int) string {
	if runewidth.StringWidth(name) <= columns {
		return name
	}
	tail := columns / 2
	return runewidth.Truncate(name, columns-tail, "…") + runewidth.TruncateLeft(name, runewidth.StringWidth(name)-tail, "")
}

// ShortenApart shortens names as Shorten does, but so that different names stay different: of names that would look the
// same it shows what begins with their first difference, and numbers those that differ only in further places.
func ShortenApart(names []string, columns int) []string {
	out := make([]string, len(names))
	alike := map[string][]string{} // the names that look the same
	for i, name := range names {
		out[i] = Shorten(name, columns)
		alike[out[i]] = append(alike[out[i]], name)
	}
	for i, name := range names {
		if common := commonPrefix(alike[out[i]]); common < len(name) {
			head := runewidth.Truncate(name, columns/4, "")
			out[i] = runewidth.Truncate(head+"…"+name[common:], columns, "…")
		}
	}
	numberAlike(names, out, columns)
	return out
}

// numberAlike ends what is shown of a name with a number where it is what is shown of another name before: "…2".
func numberAlike(names, shown []string, columns int) {
	nameOf := map[string]string{} // by what is shown
	for i, name := range names {
		text := shown[i]
		for n := 2; ; n++ {
			if other, taken := nameOf[shown[i]]; !taken || other == name {
				break
			}
			number := fmt.Sprintf("…%d", n)
			shown[i] = runewidth.Truncate(text, max(0, columns-runewidth.StringWidth(number)), "") + number
		}
		nameOf[shown[i]] = name
	}
}

// commonPrefix returns the length of what all names begin with.
func commonPrefix(names []string) int {
	n := len(names[0])
	for _, name := range names[1:] {
		n = min(n, len(name))
		for i := range n {
			if name[i] != names[0][i] {
				n = i
				break
			}
		}
	}
	for n > 0 && n < len(names[0]) && !utf8.RuneStart(names[0][n]) {
		n--
	}
	return n
}

// Wrap breaks a text at spaces into lines of at most that many columns; 0 is any number. A command in backquotes stays
// whole if a line can hold it. Only a single word, such as a path, may be wider than a line.
func Wrap(text string, columns int) (lines []string) {
	if columns == 0 {
		return []string{text}
	}
	all := words(text, columns)
	line := all[0]
	for _, word := range all[1:] {
		if strings.TrimSpace(line) != "" && Width(line)+1+Width(word) > columns {
			lines = append(lines, line)
			line = word
			continue
		}
		line += " " + word
	}
	return append(lines, line)
}

// words splits a text at spaces outside backquotes, and at all spaces what is then wider than a line.
func words(text string, columns int) (out []string) {
	add := func(word string) {
		if Width(word) <= columns {
			out = append(out, word)
			return
		}
		out = append(out, strings.Split(word, " ")...)
	}
	quoted, from := false, 0
	for i := range len(text) {
		switch {
		case text[i] == '`':
			quoted = !quoted
		case text[i] == ' ' && !quoted:
			add(text[from:i])
			from = i + 1
		}
	}
	add(text[from:])
	return out
}

// continued is the indent of the lines of a sentence behind the first.
const continued = "  "

// leastText is the narrowest a text is wrapped to.
const leastText = 20

// Sentence wraps a text to that many columns, 0 being any number, with the later lines indented.
func Sentence(text string, columns int) []string {
	if columns == 0 {
		return []string{text}
	}
	lines := Wrap(text, max(leastText, columns-len(continued)))
	for i := range lines[1:] {
		lines[i+1] = continued + lines[i+1]
	}
	return lines
}

// Sentences is Sentence for each line of a text.
func Sentences(text string, columns int) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		out = append(out, Sentence(line, columns)...)
	}
	return strings.Join(out, "\n")
}

// Fact formats a label of that many columns and a text beside it, which is wrapped to what is left of the columns, as
// lines that end in a newline.
func Fact(label string, labelColumns int, text string, columns int) string {
	lines := []string{text}
	if columns > 0 {
		lines = Wrap(text, max(leastText, columns-labelColumns))
	}
	var b strings.Builder
	for i, line := range lines {
		if i > 0 {
			label = ""
		}
		b.WriteString(runewidth.FillRight(label, labelColumns) + line + "\n")
	}
	return b.String()
}
