package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// kind is the class of a character in GPT-2's pattern.
type kind uint8

const (
	end    kind = iota // end of text
	space              // \s
	letter             // \p{L}
	number             // \p{N}
	other              // all others, including bytes that are not UTF-8
)

// next returns the kind of the first character of s, and its size in bytes.
func next(s string) (kind, int) {
	if s == "" {
		return end, 0
	}
	if c := s[0]; c < utf8.RuneSelf {
		return ascii[c], 1
	}
	r, n := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && n == 1:
		return other, 1
	case unicode.IsLetter(r):
		return letter, n
	case unicode.IsNumber(r):
		return number, n
	case unicode.IsSpace(r):
		return space, n
	}
	return other, n
}

var ascii = func() (t [utf8.RuneSelf]kind) {
	for c := range t {
		switch r := rune(c); {
		case unicode.IsLetter(r):
			t[c] = letter
		case unicode.IsNumber(r):
			t[c] = number
		case unicode.IsSpace(r):
			t[c] = space
		default:
			t[c] = other
		}
	}
	return t
}()

// word returns the length in bytes of the first word of s, which is the first
// alternative that matches in the pattern
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// It is 0 only for "".
func word(s string) int {
	if s == "" {
		return 0
	}
	if n := contraction(s); n > 0 {
		return n
	}
	run := 0
	k, n := next(s)
	if s[0] == ' ' {
		if after, m := next(s[1:]); after != space && after != end {
			run, k, n = 1, after, m
		}
	}
	want, last := k, 0
	for k == want {
		run, last = run+n, n
		k, n = next(s[run:])
	}
	// The last character of white space before a word is not part of the white
	// space: it belongs to the word, or is a word of its own.
	if want == space && k != end && run > last {
		run -= last
	}
	return run
}

// contraction returns the length of an English contraction, such as 'll, at the
// start of s, or 0.
func contraction(s string) int {
	if s[0] != '\'' || len(s) < 2 {
		return 0
	}
	switch s[1] {
	case 's', 't', 'm', 'd':
		return 2
	}
	if len(s) >= 3 {
		switch s[1:3] {
		case "re", "ve", "ll":
			return 3
		}
	}
	return 0
}
