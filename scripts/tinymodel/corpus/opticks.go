package corpus

import "strings"

// Opticks returns the paragraphs of Newton's Opticks. text is the contents of Go's
// src/testdata/Isaac.Newton-Opticks.txt. Opticks joins the lines of a paragraph,
// removes emphasis marks, and omits the transcribers' note, tables and captions of
// figures.
func Opticks(text string) []string {
	_, text, _ = strings.Cut(text, "pgdp.net.") // the end of the transcribers' note
	var out []string
	for _, p := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n\n") {
		p = strings.Trim(p, "\n")
		if p == "" || strings.HasPrefix(p, "[Illustration") || table(p) {
			continue
		}
		p = strings.ReplaceAll(p, "_", "")
		out = append(out, strings.Join(strings.Fields(p), " "))
	}
	return out
}

// table reports whether a paragraph is a table or an ornament.
func table(p string) bool {
	for line := range strings.SplitSeq(p, "\n") {
		if strings.HasPrefix(line, "  ") || strings.ContainsAny(line, "|{}") || strings.Contains(line, "---") {
			return true
		}
	}
	return false
}
