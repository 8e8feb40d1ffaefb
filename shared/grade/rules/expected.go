package rules

import (
	"encoding/json"

	"rollout/shared/grade"
	"rollout/shared/jsonl"
)

// expectation is an expected value as graders compare it.
type expectation struct {
	text   string
	number bool // it was written as a JSON number
}

// expectations returns the values of which any one is right: a text, a number or
// a boolean, or a list of them. Without one it returns the cause.
func expectations(raw json.RawMessage) ([]expectation, grade.Cause) {
	if raw == nil {
		return nil, grade.NoExpected
	}
	if raw[0] != '[' {
		e, ok := readExpectation(raw)
		if !ok {
			return nil, grade.BadExpected
		}
		return []expectation{e}, ""
	}
	var all []expectation
	a := jsonl.ReadKnownArray(raw)
	for element, ok := a.Next(); ok; element, ok = a.Next() {
		e, ok := readExpectation(element)
		if !ok {
			return nil, grade.BadExpected
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		return nil, grade.NoExpected
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
