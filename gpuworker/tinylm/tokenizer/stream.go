package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Stream turns tokens into text one at a time. A token may end in the middle
// of a character: Stream holds its bytes back until the rest is there, so that
// every string it returns is valid UTF-8. Bytes that can't become a character
// are U+FFFD each, so that what it held back is never more than three bytes.
type Stream struct {
	t    *Tokenizer
	held []byte
}

// NewStream returns a stream at the beginning of a text.
func (t *Tokenizer) NewStream() *Stream { return &Stream{t: t} }

// Push adds a token and returns the text that is now complete; special tokens
// and ids out of range add none.
func (s *Stream) Push(id int32) string {
	s.held = append(s.held, s.t.Piece(id)...)
	return s.take(false)
}

// Flush returns what was held back, at the end of the text.
func (s *Stream) Flush() string { return s.take(true) }

func (s *Stream) take(all bool) string {
	var out strings.Builder
	b := s.held
	for len(b) > 0 && (all || utf8.FullRune(b)) {
		r, n := utf8.DecodeRune(b)
		out.WriteRune(r)
		b = b[n:]
	}
	s.held = append(s.held[:0], b...)
	return out.String()
}
