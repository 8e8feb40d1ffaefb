package guidance

import "strings"

// scaffoldLine is a line of the scaffold that no entry may repeat: an entry that says
// it again, or says it with a change around it, speaks in the scaffold's name.
type scaffoldLine struct {
	line   string
	folded string // as words has it
}

// scaffoldLines returns the lines of the scaffold that have at least RunWords words:
// shorter ones, such as "Rules:", prove nothing.
func (g Guidance) scaffoldLines() (out []scaffoldLine) {
	for line := range strings.SplitSeq(g.Scaffold, "\n") {
		if folded, weight := words(line); weight >= runWeight {
			out = append(out, scaffoldLine{strings.TrimSpace(line), folded})
		}
	}
	return out
}

// containsLine returns the first of the lines that the text contains.
func containsLine(lines []scaffoldLine, text string) (line string, ok bool) {
	if len(lines) == 0 {
		return "", false
	}
	folded, _ := words(text)
	for _, l := range lines {
		if strings.Contains(folded, l.folded) {
			return l.line, true
		}
	}
	return "", false
}
