package jsonl

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"rollout/shared/fault"
)

// maxDepth is how deep values may nest.
const maxDepth = 200

// syntaxError says where a value breaks the grammar of RFC 8259.
func syntaxError(at int, format string, args ...any) error {
	return fault.New(fault.Invalid, "byte %d: %s", at, fmt.Sprintf(format, args...))
}

func unexpected(b []byte, i int, want string) error {
	if i >= len(b) {
		return syntaxError(i, "the text ends where %s should be", want)
	}
	return syntaxError(i, "%q where %s should be", b[i], want)
}

// Check reports whether b is one JSON value, with white space around it or
// not. It does not look at UTF-8: that is cheaper for a whole line at once.
func Check(b []byte) error {
	_, end, err := value(b, 0)
	if err == nil && end < len(b) {
		err = unexpected(b, end, "the end")
	}
	return err
}

// value returns the value that starts at or after i, without white space around
// it, and the first index behind it that holds no white space.
func value(b []byte, i int) (v []byte, next int, err error) {
	start := space(b, i)
	end, err := walk(b, start, 0)
	if err != nil {
		return nil, end, err
	}
	return b[start:end], space(b, end), nil
}

// space returns the first index from i on that holds no white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// walk returns the end of the value that starts at i. Nothing is decoded.
func walk(b []byte, i, depth int) (int, error) {
	if i >= len(b) {
		return i, unexpected(b, i, "a value")
	}
	switch c := b[i]; {
	case c == '"':
		end, _, err := text(b, i)
		return end, err
	case c == '{':
		return walkObject(b, i, depth+1)
	case c == '[':
		return walkArray(b, i, depth+1)
	case c == '-' || c >= '0' && c <= '9':
		return number(b, i)
	case c == 't':
		return literal(b, i, "true")
	case c == 'f':
		return literal(b, i, "false")
	case c == 'n':
		return literal(b, i, "null")
	}
	return i, unexpected(b, i, "a value")
}

func walkObject(b []byte, i, depth int) (int, error) {
	if depth > maxDepth {
		return i, syntaxError(i, "values nest deeper than %d", maxDepth)
	}
	i = space(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for {
		_, _, next, err := name(b, i)
		if err != nil {
			return next, err
		}
		if i, err = walk(b, next, depth); err != nil {
			return i, err
		}
		i = space(b, i)
		switch {
		case i < len(b) && b[i] == ',':
			i = space(b, i+1)
		case i < len(b) && b[i] == '}':
			return i + 1, nil
		default:
			return i, unexpected(b, i, "',' or '}'")
		}
	}
}

func walkArray(b []byte, i, depth int) (int, error) {
	if depth > maxDepth {
		return i, syntaxError(i, "values nest deeper than %d", maxDepth)
	}
	i = space(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, nil
	}
	for {
		var err error
		if i, err = walk(b, i, depth); err != nil {
			return i, err
		}
		i = space(b, i)
		switch {
		case i < len(b) && b[i] == ',':
			i = space(b, i+1)
		case i < len(b) && b[i] == ']':
			return i + 1, nil
		default:
			return i, unexpected(b, i, "',' or ']'")
		}
	}
}

// name reads a member's name at i, and the colon: its end, whether it has
// escapes, and where the member's value starts.
func name(b []byte, i int) (end int, escaped bool, next int, err error) {
	if i >= len(b) || b[i] != '"' {
		return i, false, i, unexpected(b, i, "a name in quotes")
	}
	end, escaped, err = text(b, i)
	if err != nil {
		return end, escaped, end, err
	}
	next = space(b, end)
	if next >= len(b) || b[next] != ':' {
		return end, escaped, next, unexpected(b, next, "':'")
	}
	return end, escaped, space(b, next+1), nil
}

// text returns the end of the string whose opening quote is at i, and whether
// it has escapes.
func text(b []byte, i int) (end int, escaped bool, err error) {
	for i++; ; {
		for i+16 <= len(b) && special(binary.LittleEndian.Uint64(b[i:]))|special(binary.LittleEndian.Uint64(b[i+8:])) == 0 {
			i += 16
		}
		for i+8 <= len(b) {
			if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
				i += bits.TrailingZeros64(m) >> 3
				break
			}
			i += 8
		}
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

// ones and tops have the lowest and the highest bit of each byte.
const ones, tops = 0x0101010101010101, 0x8080808080808080

// special marks, in the top bit of each byte, the quotes, backslashes and
// control characters among eight bytes. Marks above the first may be wrong.
func special(x uint64) uint64 {
	quote := x ^ ones*'"'
	slash := x ^ ones*'\\'
	return ((quote-ones)&^quote | (slash-ones)&^slash | (x-ones*' ')&^x) & tops
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
