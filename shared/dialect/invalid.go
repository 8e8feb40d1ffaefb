package dialect

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"rollout/shared/fault"
)

// lineError is the fault of a line that is no request.
func lineError(remedy, format string, args ...any) error {
	return &fault.Error{Kind: fault.Invalid, Class: fault.InvalidLine, Err: fmt.Errorf(format, args...), Remedy: remedy}
}

// wrongType says that what is not of the wanted type.
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

// clip shortens what a message shows of the input.
func clip(b []byte) string {
	const most = 64
	if len(b) <= most {
		return string(b)
	}
	return string(bytes.ToValidUTF8(b[:most], nil)) + "…"
}

// invalidAt is the index of the first byte that is no UTF-8.
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
