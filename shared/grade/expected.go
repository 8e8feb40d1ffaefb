package grade

import (
	"encoding/json"
	"strconv"
	"strings"

	"rollout/shared/jsonl"
)

// Lookup returns the value at the path in a line that was parsed before: names of
// members, and numbers of elements from 0, with a dot between them. It returns
// nil if there is none, or if it is null.
func Lookup(line []byte, path string) json.RawMessage {
	value := line
	for name := range strings.SplitSeq(path, ".") {
		if value = step(value, name); value == nil {
			return nil
		}
	}
	if string(value) == "null" {
		return nil
	}
	return value
}

// step returns the member or element of a value; nil if there is none.
func step(value []byte, name string) []byte {
	o := jsonl.ReadKnownObject(value)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		if string(m.Name) == name {
			return m.Value
		}
	}
	if n, err := strconv.Atoi(name); err == nil && n >= 0 {
		a := jsonl.ReadKnownArray(value)
		for e, ok := a.Next(); ok; e, ok = a.Next() {
			if n == 0 {
				return e
			}
			n--
		}
	}
	return nil
}

// expectation is an expected value as graders compare it.
type expectation struct {
	text   string
	number bool // it was written as a JSON number
}

// expectations returns the values of which any one is right: a text, a number or
// a boolean, or a list of them. Without one it returns the cause.
func expectations(raw json.RawMessage) ([]expectation, Cause) {
	if raw == nil {
		return nil, NoExpected
	}
	if raw[0] != '[' {
		e, ok := readExpectation(raw)
		if !ok {
			return nil, BadExpected
		}
		return []expectation{e}, ""
	}
	var all []expectation
	a := jsonl.ReadKnownArray(raw)
	for element, ok := a.Next(); ok; element, ok = a.Next() {
		e, ok := readExpectation(element)
		if !ok {
			return nil, BadExpected
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		return nil, NoExpected
	}
	return all, ""
}

func readExpectation(raw []byte) (e expectation, ok bool) {
	switch raw[0] {
	case '"':
		text, ok := jsonl.Unquote(nil, raw)
		return expectation{text: string(text)}, ok
	case '{', '[', 'n':
		return e, false
	}
	return expectation{text: string(raw), number: raw[0] != 't' && raw[0] != 'f'}, true
}
