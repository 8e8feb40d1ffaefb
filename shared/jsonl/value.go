package jsonl

import (
	"fmt"
	"unicode/utf8"

	"rollout/shared/fault"
)

// maxDepth is how deep values may nest.
const maxDepth = 200

// syntaxError returns an error at an offset where a value violates RFC 8259.
func syntaxError(at int, format string, args ...any) error {
	return fault.New(fault.Invalid, "byte %d: %s", at, fmt.Sprintf(format, args...))
}

func unexpected(b []byte, i int, want string) error {
	if i >= len(b) {
		return syntaxError(i, "the text ends where %s should be", want)
	}
	found, _ := utf8.DecodeRune(b[i:]) // U+FFFD for what is not UTF-8
	return syntaxError(i, "%q where %s should be", found, want)
}

// Check returns a syntax error unless b is one JSON value, with optional white space
// around it. It does not check UTF-8, which is cheaper for a whole line at once.
func Check(b []byte) error {
	w := walker{b: b}
	end, err := w.value(space(b, 0), 0)
	if err != nil {
		return err
	}
	if end = space(b, end); end < len(b) {
		return unexpected(b, end, "the end")
	}
	return nil
}

// space returns the first index from i on without white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// walker walks over values without decoding them.
type walker struct {
	b      []byte
	known  bool // b is known to be valid: strings are not checked again
	spaced bool // there was white space between tokens
}

// space is the function space, and records whether there was white space.
func (w *walker) space(i int) int {
	end := space(w.b, i)
	w.spaced = w.spaced || end > i
	return end
}

// value returns the end of the value that starts at i.
func (w *walker) value(i, depth int) (int, error) {
	b := w.b
	if i >= len(b) {
		return i, unexpected(b, i, "a value")
	}
	switch c := b[i]; {
	case c == '"' && w.known:
		return skipText(b, i), nil
	case c == '"':
		end, _, err := stringEnd(b, i)
		return end, err
	case c == '{':
		return w.object(i, depth+1)
	case c == '[':
		return w.array(i, depth+1)
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

func (w *walker) object(i, depth int) (int, error) {
	b := w.b
	if depth > maxDepth {
		return i, syntaxError(i, "values nest deeper than %d", maxDepth)
	}
	i = w.space(i + 1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for {
		_, _, next, err := w.name(i)
		if err != nil {
			return next, err
		}
		if i, err = w.value(next, depth); err != nil {
			return i, err
		}
		i = w.space(i)
		switch {
		case i < len(b) && b[i] == ',':
			i = w.space(i + 1)
		case i < len(b) && b[i] == '}':
			return i + 1, nil
		default:
			return i, unexpected(b, i, "',' or '}'")
		}
	}
}

func (w *walker) array(i, depth int) (int, error) {
	b := w.b
	if depth > maxDepth {
		return i, syntaxError(i, "values nest deeper than %d", maxDepth)
	}
	i = w.space(i + 1)
	if i < len(b) && b[i] == ']' {
		return i + 1, nil
	}
	for {
		var err error
		if i, err = w.value(i, depth); err != nil {
			return i, err
		}
		i = w.space(i)
		switch {
		case i < len(b) && b[i] == ',':
			i = w.space(i + 1)
		case i < len(b) && b[i] == ']':
			return i + 1, nil
		default:
			return i, unexpected(b, i, "',' or ']'")
		}
	}
}

// name reads the name of a member at i, and the colon. It returns the end of the name,
// whether it has escapes, and where the member's value starts.
func (w *walker) name(i int) (end int, escaped bool, next int, err error) {
	b := w.b
	if i >= len(b) || b[i] != '"' {
		return i, false, i, unexpected(b, i, "a name in quotes")
	}
	end, escaped, err = stringEnd(b, i)
	if err != nil {
		return end, escaped, end, err
	}
	next = w.space(end)
	if next >= len(b) || b[next] != ':' {
		return end, escaped, next, unexpected(b, next, "':'")
	}
	return end, escaped, w.space(next + 1), nil
}
