package jsonl

import (
	"math/bits"
	"unicode/utf8"
)

// Compact appends the JSON value raw to dst without the white space between its tokens.
// Everything else stays as written. For an invalid raw its result is undefined.
func Compact(dst, raw []byte) []byte {
	run := 0
	for i := 0; i < len(raw); {
		switch raw[i] {
		case '"':
			i = skipText(raw, i)
		case ' ', '\n', '\t', '\r':
			dst = append(dst, raw[run:i]...)
			i = space(raw, i)
			run = i
		default:
			i++
		}
	}
	return append(dst, raw[run:]...)
}

const hexDigits = "0123456789abcdef"

// AppendString appends s as a JSON string that every reader takes for one line: control
// characters, U+0085, U+2028 and U+2029 become escapes. Invalid UTF-8 becomes U+FFFD.
func AppendString(dst []byte, s string) []byte {
	return appendText(dst, s, false)
}

// AppendQuoted is the inverse of Unquote: it is AppendString, but lone surrogates become
// escapes again.
func AppendQuoted(dst []byte, s string) []byte {
	return appendText(dst, s, true)
}

func appendText(dst []byte, s string, surrogates bool) []byte {
	dst = append(dst, '"')
	run := 0
	for i := 0; i < len(s); {
		if i = plain(s, i); i == len(s) {
			break
		}
		c := s[i]
		if c < utf8.RuneSelf {
			dst = append(dst, s[run:i]...)
			dst = appendEscape(dst, c)
			i++
			run = i
			continue
		}
		r, size := decodeRune(s[i:], surrogates)
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(dst, s[run:i]...)
			dst = utf8.AppendRune(dst, utf8.RuneError)
		case r == 0x85 || r == 0x2028 || r == 0x2029 || r >= 0xD800 && r < 0xE000:
			dst = append(dst, s[run:i]...)
			dst = appendUnicode(dst, r)
		default:
			i += size
			continue
		}
		i += size
		run = i
	}
	dst = append(dst, s[run:]...)
	return append(dst, '"')
}

// plain returns the first index from i on whose character is not ASCII, or needs an
// escape in a string.
func plain(s string, i int) int {
	for ; i+8 <= len(s); i += 8 {
		x := uint64(s[i]) | uint64(s[i+1])<<8 | uint64(s[i+2])<<16 | uint64(s[i+3])<<24 |
			uint64(s[i+4])<<32 | uint64(s[i+5])<<40 | uint64(s[i+6])<<48 | uint64(s[i+7])<<56
		if m := special(x) | x&tops; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for i < len(s) && s[i] < utf8.RuneSelf && s[i] >= ' ' && s[i] != '"' && s[i] != '\\' {
		i++
	}
	return i
}

// decodeRune is utf8.DecodeRuneInString that also decodes surrogates on request.
func decodeRune(s string, surrogates bool) (rune, int) {
	r, size := utf8.DecodeRuneInString(s)
	if surrogates && r == utf8.RuneError && size == 1 &&
		len(s) >= 3 && s[0] == 0xED && s[1] >= 0xA0 && s[1] < 0xC0 && s[2]&0xC0 == 0x80 {
		return 0xD000 | rune(s[1]&0x3F)<<6 | rune(s[2]&0x3F), 3
	}
	return r, size
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return appendUnicode(dst, rune(c))
}

func appendUnicode(dst []byte, r rune) []byte {
	return append(dst, '\\', 'u', hexDigits[r>>12&0xF], hexDigits[r>>8&0xF], hexDigits[r>>4&0xF], hexDigits[r&0xF])
}
