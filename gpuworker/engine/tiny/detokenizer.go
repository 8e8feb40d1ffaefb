package tiny

import (
	"strings"
	"unicode/utf8"
)

// detokenizer converts an answer's tokens to text, and finds stop strings. It
// returns text as soon as it is certain: it keeps the bytes of an incomplete
// character, and text that may be the start of a stop string. Bytes that are not
// UTF-8 become U+FFFD.
type detokenizer struct {
	stops []string
	keep  bool // the stop string is part of the text

	bytes []byte // an incomplete character
	held  string // text that may be the start of a stop string
	runes int    // characters so far, including held ones
}

// add adds a token's bytes and returns the text that is now certain. stopped is
// true if a stop string was found; the text then ends with or before it. With
// ignoreStops, add does not search for stop strings.
func (d *detokenizer) add(piece []byte, ignoreStops bool) (text string, stopped bool) {
	d.bytes = append(d.bytes, piece...)
	return d.advance(ignoreStops, false)
}

// end returns the rest of the text at the answer's end.
func (d *detokenizer) end(ignoreStops bool) (text string, stopped bool) {
	if text, stopped = d.advance(ignoreStops, true); stopped {
		return text, true
	}
	text += d.held
	d.held = ""
	return text, false
}

// advance returns the text that is certain, and whether a stop string was found.
// With all, it also converts an incomplete character.
func (d *detokenizer) advance(ignoreStops, all bool) (string, bool) {
	d.held += d.characters(all)
	if len(d.stops) == 0 || ignoreStops {
		text := d.held
		d.held = ""
		return text, false
	}
	if at, stop := d.findStop(); at >= 0 {
		if d.keep {
			at += len(stop)
		}
		text := d.held[:at]
		d.held = ""
		return text, true
	}
	partial := d.partialStop()
	text := d.held[:len(d.held)-partial]
	d.held = d.held[len(d.held)-partial:]
	return text, false
}

// characters removes the complete characters from the bytes and returns them.
// With all, it removes all bytes.
func (d *detokenizer) characters(all bool) string {
	var out strings.Builder
	b := d.bytes
	for len(b) > 0 && (all || utf8.FullRune(b)) {
		r, n := utf8.DecodeRune(b)
		out.WriteRune(r)
		d.runes++
		b = b[n:]
	}
	d.bytes = append(d.bytes[:0], b...)
	return out.String()
}

// findStop returns the first stop string in the held text and its index, or -1.
// Of stop strings at the same index, the one listed first in the request wins.
func (d *detokenizer) findStop() (int, string) {
	at, stop := -1, ""
	for _, s := range d.stops {
		if i := strings.Index(d.held, s); i >= 0 && (at < 0 || i < at) {
			at, stop = i, s
		}
	}
	return at, stop
}

// partialStop returns the length of the longest suffix of the held text that is a
// proper prefix of a stop string.
func (d *detokenizer) partialStop() int {
	longest := 0
	for _, s := range d.stops {
		for n := min(len(s)-1, len(d.held)); n > longest; n-- {
			if strings.HasSuffix(d.held, s[:n]) {
				longest = n
			}
		}
	}
	return longest
}
