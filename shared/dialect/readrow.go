package dialect

import (
	"encoding/json"
	"strings"

	"rollout/shared/fault"
)

// ReadFailure reads an error row back: what AppendError wrote. ok is false for
// any other row.
func ReadFailure(d Name, row []byte) (f Failure, ok bool) {
	type told struct {
		Item    *uint64
		File    string
		Line    uint64
		Class   fault.Class
		Code    fault.Class // OpenAI's name for it
		Message string
		// Bedrock's
		ErrorMessage string
	}
	var t told
	switch d {
	case OpenAI, Bedrock:
		var r struct{ Error *told }
		if json.Unmarshal(row, &r) != nil || r.Error == nil {
			return f, false
		}
		t = *r.Error
		if d == OpenAI {
			t.Class = t.Code
		} else {
			t.Message = t.ErrorMessage
		}
	case Vertex:
		var r struct {
			told
			Status string
		}
		if json.Unmarshal(row, &r) != nil {
			return f, false
		}
		t = r.told
		t.Message = strings.TrimPrefix(r.Status, string(t.Class)+": ")
	default:
		var r struct {
			told
			Error string
		}
		if json.Unmarshal(row, &r) != nil {
			return f, false
		}
		t = r.told
		t.Message = r.Error
	}
	if t.Item == nil || t.Class == "" {
		return f, false
	}
	id, _ := ScanID(d, row)
	return Failure{ID: string(id), Place: Place{Item: *t.Item, File: t.File, Line: t.Line}, Class: t.Class, Message: t.Message}, true
}
