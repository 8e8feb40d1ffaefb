package dialect

import (
	"fmt"
	"unicode/utf8"

	"rollout/shared/fault"
	"rollout/shared/text"
)

// lineError returns the error of a line that is not a request.
func lineError(remedy, format string, args ...any) error {
	return &fault.Error{Kind: fault.Invalid, Class: fault.InvalidLine, Err: fmt.Errorf(format, args...), Remedy: remedy}
}

// wrongType returns the error of a value that does not have the wanted type.
func wrongType(what, want string, raw []byte) error {
	return lineError("make it "+want, "%s is %s, not %s", what, typeOf(raw), want)
}

func typeOf(raw []byte) string {
	switch raw[0] {
	case '"':
		return "a string"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// clip shortens a part of the input for an error.
func clip(b []byte) string {
	const limit = 64
	return text.Truncate(string(b[:min(len(b), limit+1)]), limit, "…") // converts no more bytes than needed
}

// invalidAt returns the index of the first byte that is not UTF-8.
func invalidAt(b []byte) int {
	for i := 0; i < len(b); {
		r, size := utf8.DecodeRune(b[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(b)
}
