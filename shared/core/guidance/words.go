package guidance

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// normalize returns the form of an entry's text: in Unicode's normal form C, with each
// run of white space, line breaks too, as one space, and none at its ends. It refuses
// text of which nothing is left, invalid UTF-8, and characters that are not seen as
// they are read: control characters, marks of direction, and other invisible ones.
// Joiners are allowed, which some scripts and emoji need.
func normalize(s string) (string, *Refused) {
	if !utf8.ValidString(s) {
		return "", &Refused{ControlCharacters, "the text is not valid UTF-8"}
	}
	for _, r := range s {
		if !unicode.IsSpace(r) && unicode.In(r, unicode.Cc, unicode.Cf) && r != zeroWidthJoiner && r != zeroWidthNonJoiner {
			return "", &Refused{ControlCharacters, fmt.Sprintf("the text has the invisible character %U: leave it out", r)}
		}
	}
	s = norm.NFC.String(strings.Join(strings.Fields(s), " "))
	if s == "" {
		return "", &Refused{EmptyText, "the text is empty"}
	}
	return s, nil
}

const (
	zeroWidthNonJoiner = '\u200c'
	zeroWidthJoiner    = '\u200d'
)

// foldCase returns s with one form for all cases of a letter.
func foldCase(s string) string { return strings.Map(fold, s) }

// fold returns one lower case letter for all letters with the same upper case.
func fold(r rune) rune { return unicode.ToLower(unicode.ToUpper(r)) }

// RunWords is how many words in a row make a run: what a text may not have in common
// with a ticket.
const RunWords = 5

// Weights of words, in halves. Scripts without spaces have no words that can be told
// without a dictionary: there, two characters count as one word.
const (
	wordWeight      = 2
	characterWeight = 1
	runWeight       = RunWords * wordWeight
)

// maxWord bounds a word, in bytes: the rest of a longer one is ignored, so that
// memory is bounded whatever a ticket holds.
const maxWord = 128

// nextWord appends the first word of s to dst, folded, and returns what follows it,
// and its weight, which is 0 if s has no word. A word is made of letters, digits and
// marks; apostrophes and invisible characters within it are ignored.
func nextWord(dst []byte, s string) (_ []byte, rest string, weight int) {
	end := len(dst) + maxWord - utf8.UTFMax
	for i := 0; i < len(s); {
		if c := s[i]; isASCIIWord(c) && weight != characterWeight { // the usual case, at once
			weight = wordWeight
			if len(dst) <= end {
				dst = append(dst, lowerASCII(c))
			}
			i++
			continue
		}
		r, size := rune(s[i]), 1
		if r >= utf8.RuneSelf {
			r, size = utf8.DecodeRuneInString(s[i:])
		}
		switch class := classOf(r); {
		case class == separator && weight > 0:
			return dst, s[i+size:], weight
		case class == character && weight > 0, class == letter && weight == characterWeight:
			return dst, s[i:], weight
		case class == letter:
			weight = wordWeight
			dst = appendFolded(dst, r, end)
		case class == character:
			weight = characterWeight
			dst = appendFolded(dst, r, end)
		case class == mark && weight > 0:
			dst = appendFolded(dst, r, end)
		}
		i += size
	}
	return dst, "", weight
}

// isASCIIWord reports whether c is a letter or digit of ASCII.
func isASCIIWord(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' }

// lowerASCII returns the lower case of a letter, and digits as they are.
func lowerASCII(c byte) byte { return c | 0x20 } // digits have that bit

// appendFolded appends a folded character, unless dst has reached end.
func appendFolded(dst []byte, r rune, end int) []byte {
	if len(dst) > end {
		return dst
	}
	return utf8.AppendRune(dst, fold(r))
}

// class says what a character is in a word.
type class int

const (
	separator class = iota
	letter          // or a digit
	character       // of a script without spaces
	mark            // belongs to the character before it
	ignored         // ends no word and is not part of one
)

func classOf(r rune) class {
	switch {
	case r == '\'', r == '’':
		return ignored
	case r < utf8.RuneSelf && isASCIIWord(byte(r)):
		return letter
	case r < utf8.RuneSelf:
		return separator
	case '\u4e00' <= r && r <= '\u9fff': // most of Han, at once
		return character
	case unicode.IsLetter(r):
		if r >= '\u0e00' && unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao,
			unicode.Khmer, unicode.Myanmar, unicode.Tibetan) {
			return character
		}
		return letter
	case unicode.IsDigit(r):
		return letter
	case unicode.IsMark(r):
		return mark
	case unicode.Is(unicode.Cf, r):
		return ignored
	}
	return separator
}

// words returns the folded words of s, with a space before and after each, so that a
// run of them can be looked for. weight is that of all of them.
func words(s string) (folded string, weight int) {
	out := []byte{' '}
	for s = norm.NFC.String(s); s != ""; {
		var w int
		if out, s, w = nextWord(out, s); w > 0 {
			out = append(out, ' ')
			weight += w
		}
	}
	return string(out), weight
}
