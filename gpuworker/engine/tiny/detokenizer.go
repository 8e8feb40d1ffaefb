package tiny

import (
	"strings"
	"unicode/utf8"
)

// detokenizer puts an answer's text together, token by token. Text is handed out as
// soon as it is certain: a character when all its bytes are there (what is not
// UTF-8 becomes U+FFFD), and what might be the begin of a stop when it is none.
type detokenizer struct {
	stops []string
	keep  bool // the stop is part of the text

	bytes []byte // of a character that is not whole
	held  string // may be the begin of a stop
	runes int    // characters so far, held ones included
}

// add adds a token's bytes. stopped says that a stop came; the text ends then.
// With calm, stops are not looked for.
func (w *detokenizer) add(piece []byte, calm bool) (text string, stopped bool) {
	w.bytes = append(w.bytes, piece...)
	return w.advance(calm, false)
}

// end returns the text that is left at the answer's end.
func (w *detokenizer) end(calm bool) (text string, stopped bool) {
	if text, stopped = w.advance(calm, true); stopped {
		return text, true
	}
	text += w.held
	w.held = ""
	return text, false
}

func (w *detokenizer) advance(calm, all bool) (string, bool) {
	w.held += w.characters(all)
	if len(w.stops) == 0 || calm {
		text := w.held
		w.held = ""
		return text, false
	}
	if at, stop := w.find(); at >= 0 {
		if w.keep {
			at += len(stop)
		}
		text := w.held[:at]
		w.held = ""
		return text, true
	}
	open := w.opening()
	text := w.held[:len(w.held)-open]
	w.held = w.held[len(w.held)-open:]
	return text, false
}

// characters takes the whole characters out of the bytes, with all also what
// can't become one any more.
func (w *detokenizer) characters(all bool) string {
	var out strings.Builder
	b := w.bytes
	for len(b) > 0 && (all || utf8.FullRune(b)) {
		r, n := utf8.DecodeRune(b)
		out.WriteRune(r)
		w.runes++
		b = b[n:]
	}
	w.bytes = append(w.bytes[:0], b...)
	return out.String()
}

// find returns where the first stop begins, -1 if none is there. Of two that
// begin at one place the earlier one in the request counts.
func (w *detokenizer) find() (int, string) {
	at, stop := -1, ""
	for _, s := range w.stops {
		if i := strings.Index(w.held, s); i >= 0 && (at < 0 || i < at) {
			at, stop = i, s
		}
	}
	return at, stop
}

// opening is the length of the longest end of the text that a stop begins
// with.
func (w *detokenizer) opening() int {
	longest := 0
	for _, s := range w.stops {
		for n := min(len(s)-1, len(w.held)); n > longest; n-- {
			if strings.HasSuffix(w.held, s[:n]) {
				longest = n
			}
		}
	}
	return longest
}
