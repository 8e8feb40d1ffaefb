package tokenizer

import (
	"strings"
	"unicode/utf8"
)

// ByteLevel spells bytes as GPT-2's vocabulary files do: a byte that Latin-1
// prints is its own character, the others follow from U+0100 on, so that a
// space is "Ġ". It is what vocab.json, merges.txt and GGUF hold.
func ByteLevel(b []byte) string {
	var s strings.Builder
	for _, c := range b {
		s.WriteRune(visible[c])
	}
	return s.String()
}

// bytesOf is the inverse of Visible; ok is false for a character that stands
// for no byte.
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
