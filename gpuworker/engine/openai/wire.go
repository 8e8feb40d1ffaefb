package openai

import (
	"bytes"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// lenient is a string. Any other value that a server may send there decodes to "".
type lenient string

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (s *lenient) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*s = ""
	if d.PeekKind() != jsontext.KindString {
		return d.SkipValue()
	}
	t, err := d.ReadToken()
	if err == nil {
		*s = lenient(t.String())
	}
	return err
}

// unmarshal decodes what servers send. Invalid UTF-8 and lone surrogates become
// U+FFFD; of equal names the last counts.
func unmarshal(data []byte, v any) error {
	return json.Unmarshal(data, v, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
}

// withoutNaN replaces NaN, Infinity and their negatives outside of strings by null.
func withoutNaN(data []byte) (fixed []byte, found bool) {
	for i := 0; i < len(data); {
		if n := stringLen(data[i:]); n > 0 {
			fixed = append(fixed, data[i:i+n]...)
			i += n
			continue
		}
		token := 0
		for _, name := range []string{"NaN", "-NaN", "Infinity", "-Infinity"} {
			if bytes.HasPrefix(data[i:], []byte(name)) {
				token = len(name)
			}
		}
		if token > 0 {
			fixed, found = append(fixed, "null"...), true
			i += token
			continue
		}
		fixed = append(fixed, data[i])
		i++
	}
	return fixed, found
}

// stringLen returns the length of the string literal at the start of data; 0 if
// data starts with something else.
func stringLen(data []byte) int {
	if data[0] != '"' {
		return 0
	}
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}

// canonical returns raw as JSON that every decoder accepts: compact, valid UTF-8,
// without duplicate names, null for NaN. It returns false if that is not possible.
func canonical(raw []byte) ([]byte, bool) {
	out, err := jsontext.AppendFormat(nil, raw, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		if fixed, found := withoutNaN(raw); found {
			out, err = jsontext.AppendFormat(nil, fixed, jsontext.AllowInvalidUTF8(true))
		}
	}
	return out, err == nil
}
