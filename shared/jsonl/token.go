package jsonl

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// stringEnd returns the end of the string whose opening quote is at i, and whether
// it has escapes.
func stringEnd(b []byte, i int) (end int, escaped bool, err error) {
	for i++; ; {
		i += plainBytes(b[i:])
		if i >= len(b) {
			return i, escaped, syntaxError(i, "the text ends inside a string")
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1, escaped, nil
		case c == '\\':
			escaped = true
			if i, err = escape(b, i); err != nil {
				return i, escaped, err
			}
		case c < ' ':
			return i, escaped, syntaxError(i, "control character 0x%02x inside a string; write it as an escape", c)
		default:
			i++
		}
	}
}

// skipText returns the end of a valid string whose opening quote is at i: the first quote
// after an even number of backslashes.
func skipText(b []byte, i int) int {
	for end := i + 1; ; end++ {
		n := bytes.IndexByte(b[end:], '"')
		if n < 0 {
			return len(b)
		}
		end += n
		slashes := 0
		for b[end-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return end + 1
		}
	}
}

// plainBytes returns how many bytes of p come before the first that is special in a
// string. It may stop a few bytes before the end of p.
func plainBytes(p []byte) int {
	n := len(p)
	for len(p) >= 32 {
		a, b := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
		c, d := binary.LittleEndian.Uint64(p[16:]), binary.LittleEndian.Uint64(p[24:])
		if special(a)|special(b)|special(c)|special(d) != 0 {
			break
		}
		p = p[32:]
	}
	for len(p) >= 8 {
		if m := special(binary.LittleEndian.Uint64(p)); m != 0 {
			return n - len(p) + bits.TrailingZeros64(m)>>3
		}
		p = p[8:]
	}
	return n - len(p)
}

// ones and tops have the lowest and the highest bit of each byte.
const ones, tops = 0x0101010101010101, 0x8080808080808080

// special marks the quotes, backslashes and control characters among eight bytes, in the
// top bit of each byte. Marks above the first one may be wrong. The exclusive or with 2
// turns a quote (0x22) into a space (0x20), just above the control characters, and
// turns control characters into control characters.
func special(x uint64) uint64 {
	return ((x ^ ones*2 - ones*(' '+1)) | (x ^ ones*'\\' - ones)) &^ x & tops
}

// escape returns the end of the escape whose backslash is at i.
func escape(b []byte, i int) (int, error) {
	if i+1 >= len(b) {
		return i, syntaxError(i, "the text ends inside a string")
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2, nil
	case 'u':
		if _, ok := hex4(b, i+2); ok {
			return i + 6, nil
		}
	}
	return i, syntaxError(i, "an escape that JSON does not have")
}

// hex4 reads four hex digits at i.
func hex4(b []byte, i int) (r rune, ok bool) {
	if i+4 > len(b) {
		return 0, false
	}
	for _, c := range b[i : i+4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c >= 'a' && c <= 'f':
			r = r<<4 | rune(c-'a'+10)
		case c >= 'A' && c <= 'F':
			r = r<<4 | rune(c-'A'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

// number returns the end of the number at i.
func number(b []byte, i int) (int, error) {
	if b[i] == '-' {
		i++
	}
	if i < len(b) && b[i] == '0' {
		i++
	} else {
		end := digits(b, i)
		if end == i {
			return i, unexpected(b, i, "a digit")
		}
		i = end
	}
	if i < len(b) && b[i] == '.' {
		end := digits(b, i+1)
		if end == i+1 {
			return end, unexpected(b, end, "a digit")
		}
		i = end
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		end := digits(b, i)
		if end == i {
			return end, unexpected(b, end, "a digit")
		}
		i = end
	}
	return i, nil
}

func digits(b []byte, i int) int {
	for i < len(b) && b[i] >= '0' && b[i] <= '9' {
		i++
	}
	return i
}

func literal(b []byte, i int, word string) (int, error) {
	if len(b)-i < len(word) || string(b[i:i+len(word)]) != word {
		return i, unexpected(b, i, "a value")
	}
	return i + len(word), nil
}
