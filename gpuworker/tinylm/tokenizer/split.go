package tokenizer

import (
	"unicode"
	"unicode/utf8"
)

// kind is what the pattern knows of a character.
type kind uint8

const (
	end    kind = iota // there is none
	space              // \s
	letter             // \p{L}
	number             // \p{N}
	other              // the rest, a byte that is no UTF-8 included
)

// next returns the kind of the character that s begins with, and its size in
// bytes.
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

// word returns the length in bytes of the word that s begins with, by the
// pattern
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// whose first alternative that matches wins. It is 0 for "" alone.
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
	// Of white space before a word, the last character belongs to the word, or
	// is a word of its own.
	if want == space && k != end && run > last {
		run -= last
	}
	return run
}

// contraction returns the length of an English ending such as 'll, or 0.
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
