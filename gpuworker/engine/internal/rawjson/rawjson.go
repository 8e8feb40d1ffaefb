// Package rawjson walks over JSON text without decoding it. Members and elements
// are passed on as the bytes in which they are written.
//
// It skips from quote to quote, about ten times faster than a decoder. That matters
// because servers send a chunk for every token. It checks that strings, objects and
// arrays are closed and separated correctly. It does not check values that the
// caller does not walk, nor literals: NaN passes. Names are compared as written, so
// that "\u0061" is not "a". Time and memory are linear in the length of the text at
// any nesting depth, because brackets are matched by counting.
package rawjson

import (
	"bytes"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// The errors of a walk.
var (
	ErrTruncated = errors.New("the JSON is truncated")
	ErrMalformed = errors.New("the JSON is malformed or has another shape")
)

// Members calls member for each member of the object, in order, with the name as
// written between its quotes. The slices are sub-slices of object. An error of
// member ends the walk. Only white space may follow the object.
func Members(object []byte, member func(name, value []byte) error) error {
	s := scanner{b: object}
	return s.list('{', '}', func() error {
		if s.peek() != '"' {
			return s.unexpected()
		}
		name, err := s.quoted()
		if err != nil {
			return err
		}
		if s.peek() != ':' {
			return s.unexpected()
		}
		s.pos++
		value, err := s.value()
		if err != nil {
			return err
		}
		return member(name[1:len(name)-1], value)
	})
}

// Elements calls element for each element of the array, in order, under the
// same rules as Members.
func Elements(array []byte, element func(value []byte) error) error {
	s := scanner{b: array}
	return s.list('[', ']', func() error {
		value, err := s.value()
		if err != nil {
			return err
		}
		return element(value)
	})
}

// Next returns the first value of the text and what follows it, without the white
// space around both. ErrTruncated says that the value has no end. The value of a
// text of white space is empty.
func Next(text []byte) (value, rest []byte, err error) {
	s := scanner{b: text}
	if s.peek(); s.pos == len(text) {
		return nil, nil, nil
	}
	if value, err = s.value(); err != nil {
		return nil, nil, err
	}
	s.peek()
	return value, text[s.pos:], nil
}

// IsNull reports whether a value is null, or absent.
func IsNull(value []byte) bool { return len(value) == 0 || string(value) == "null" }

// IsString reports whether a value is a string.
func IsString(value []byte) bool { return len(value) > 0 && value[0] == '"' }

// IsObject reports whether a value is an object.
func IsObject(value []byte) bool { return len(value) > 0 && value[0] == '{' }

// IsArray reports whether a value is an array.
func IsArray(value []byte) bool { return len(value) > 0 && value[0] == '[' }

// AppendText appends the text of a JSON string. Lone surrogates and invalid UTF-8
// become U+FFFD. For a value that is not a valid string it returns ErrMalformed.
func AppendText(dst, value []byte) ([]byte, error) {
	if len(value) < 2 || value[0] != '"' || value[len(value)-1] != '"' {
		return dst, ErrMalformed
	}
	inner := value[1 : len(value)-1]
	if plain(inner) {
		return append(dst, inner...), nil
	}
	out, err := jsontext.AppendUnquote(dst, value)
	if err != nil && !jsonAllows(value) {
		return dst, ErrMalformed
	}
	return out, nil
}

// plain reports whether the inside of a string is its text.
func plain(inner []byte) bool {
	if bytes.IndexByte(inner, '\\') >= 0 || !utf8.Valid(inner) {
		return false
	}
	for _, c := range inner {
		if c < ' ' || c == '"' {
			return false
		}
	}
	return true
}

// jsonAllows reports whether the value is JSON, apart from invalid UTF-8.
func jsonAllows(value []byte) bool {
	return jsontext.Value(value).IsValid(jsontext.AllowInvalidUTF8(true))
}

// scanner is a position in a text.
type scanner struct {
	b   []byte
	pos int
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for ; s.pos < len(s.b); s.pos++ {
		switch c := s.b[s.pos]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// unexpected returns the error for what peek found.
func (s *scanner) unexpected() error {
	if s.pos >= len(s.b) {
		return ErrTruncated
	}
	return ErrMalformed
}

// list reads an object or array. It calls item to read each part between commas.
func (s *scanner) list(first, last byte, item func() error) error {
	if s.peek() != first {
		return s.unexpected()
	}
	s.pos++
	if s.peek() != last {
		for {
			if err := item(); err != nil {
				return err
			}
			if s.peek() != ',' {
				break
			}
			s.pos++
		}
	}
	if s.peek() != last {
		return s.unexpected()
	}
	s.pos++
	if s.peek() != 0 || s.pos < len(s.b) {
		return ErrMalformed
	}
	return nil
}

// value returns the next value's bytes.
func (s *scanner) value() ([]byte, error) {
	c, start := s.peek(), s.pos
	switch c {
	case '"':
		return s.quoted()
	case '{', '[':
		return s.container(start)
	}
	for s.pos < len(s.b) && strings.IndexByte(" \t\r\n,:]}\"[{", s.b[s.pos]) < 0 {
		s.pos++
	}
	if s.pos == start {
		return nil, s.unexpected()
	}
	return s.b[start:s.pos], nil
}

// quoted returns the string at pos with its quotes.
func (s *scanner) quoted() ([]byte, error) {
	start := s.pos
	for s.pos++; ; s.pos++ {
		n := bytes.IndexByte(s.b[s.pos:], '"')
		if n < 0 {
			return nil, ErrTruncated
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
	return nil, ErrTruncated
}
