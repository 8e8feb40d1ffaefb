package dialect

import (
	"encoding/json"
	"strings"

	"rollout/shared/fault"
)

// ReadFailure reads an error row that AppendError wrote. It returns false for any other
// row.
func ReadFailure(d Name, row []byte) (f Failure, ok bool) {
	type errorRow struct { // the field names are the names in the rows
		Item         *uint64
		File         string
		Line         uint64
		Class        fault.Class
		Code         string // of the Class in the openai dialect
		Message      string
		ErrorMessage string // the Message in the bedrock dialect
	}
	var t errorRow
	switch d {
	case OpenAI, Bedrock:
		var r struct{ Error *errorRow }
		if json.Unmarshal(row, &r) != nil || r.Error == nil {
			return f, false
		}
		t = *r.Error
		if d == OpenAI {
			t.Class = classOfCode(t.Code)
		} else {
			t.Message = t.ErrorMessage
		}
	case Vertex:
		var r struct {
			errorRow
			Status string
		}
		if json.Unmarshal(row, &r) != nil {
			return f, false
		}
		t = r.errorRow
		t.Message = strings.TrimPrefix(r.Status, string(t.Class)+": ")
	default:
		var r struct {
			errorRow
			Error string
		}
		if json.Unmarshal(row, &r) != nil {
			return f, false
		}
		t = r.errorRow
		t.Message = r.Error
	}
	if t.Item == nil || t.Class == "" {
		return f, false
	}
	id, _ := ScanID(d, row)
	place := Place{Item: *t.Item, File: t.File, Line: t.Line}
	return Failure{ID: string(id), Place: place, Class: t.Class, Message: t.Message}, true
}
