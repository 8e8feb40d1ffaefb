package text

import (
	"regexp"
	"strings"
)

// Template is a text with placeholders, which are names in braces: {answer}. All other
// braces are text, such as those of JSON. The zero value is an empty text. It is safe for
// concurrent use.
type Template struct{ pieces []piece }

// piece is a part of a template: text as it is written, or a placeholder.
type piece struct{ text, place string }

// ParseTemplate cuts a text at its placeholders, which have one of the names: words of
// letters, digits and underscores.
func ParseTemplate(s string, names []string) (t Template) {
	places := regexp.MustCompile(`\{(` + strings.Join(names, "|") + `)\}`)
	at := 0
	for _, m := range places.FindAllStringSubmatchIndex(s, -1) {
		t.pieces = append(t.pieces, piece{text: s[at:m[0]]}, piece{place: s[m[2]:m[3]]})
		at = m[1]
	}
	if at < len(s) {
		t.pieces = append(t.pieces, piece{text: s[at:]})
	}
	return t
}

// Empty reports whether the template is that of "".
func (t Template) Empty() bool { return len(t.pieces) == 0 }

// Size returns the length in bytes of what Render returns.
func (t Template) Size(values map[string]string) (n int) {
	for _, p := range t.pieces {
		n += len(p.text) + len(values[p.place])
	}
	return n
}

// Render returns the text with the values of its placeholders. Placeholders in a value
// stay as they are.
func (t Template) Render(values map[string]string) string {
	var b strings.Builder
	for _, p := range t.pieces {
		b.WriteString(p.text)
		b.WriteString(values[p.place])
	}
	return b.String()
}
