package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// ByteLevel spells bytes as vocab.json, merges.txt and GGUF do, following GPT-2:
// one character for each byte. A byte that is printable in Latin-1 is that
// character; the others are the characters from U+0100 on, so that a space is
// "Ġ".
func ByteLevel(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		s.WriteRune(visible[c])
	}
	return s.String()
}

// bytesOf is the inverse of ByteLevel. ok is false if a character of s does not
// represent a byte.
func bytesOf(s string) (b []byte, ok bool) {
	for _, r := range s {
		c, found := invisible[r]
		if !found {
			return nil, false
		}
		b = append(b, c)
	}
	return b, utf8.ValidString(s)
}

// visible maps bytes to the characters of ByteLevel; invisible is its inverse.
var visible, invisible = func() (v [256]rune, inv map[rune]byte) {
	inv = make(map[rune]byte, len(v))
	hidden := rune(0x100)
	for c := range v {
		r := rune(c)
		if !('!' <= r && r <= '~' || '¡' <= r && r <= '¬' || '®' <= r && r <= 'ÿ') {
			r = hidden
			hidden++
		}
		v[c] = r
		inv[r] = byte(c)
	}
	return v, inv
}()
