package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// Stream converts tokens to text one at a time. A token may end in the middle of
// a character; Stream keeps these bytes until the character is complete, so that
// every string it returns is valid UTF-8. Each byte that cannot be part of a
// character becomes U+FFFD, so that Stream never keeps more than three bytes.
type Stream struct {
	t    *Tokenizer
	held []byte
}

// NewStream returns a Stream at the beginning of a text.
func (t *Tokenizer) NewStream() *Stream { return &Stream{t: t} }

// Push adds a token and returns the text that is now complete. Special tokens and
// ids out of range add no text.
func (s *Stream) Push(id int32) string {
	s.held = append(s.held, s.t.Piece(id)...)
	return s.take(false)
}

// Flush returns the bytes that were kept, at the end of the text.
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
