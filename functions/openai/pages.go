package openai

import (
	"encoding/json"

	"rollout/shared/fault"
	"rollout/shared/text"
)

// maxAnswer bounds an answer in bytes, as those of the other API; pageBytes is what the elements
// of a list, or one object, have of it.
const (
	maxAnswer = 64 << 10
	pageBytes = maxAnswer - 4<<10
)

// list is a page of a list.
type list[T any] struct {
	Object  string `json:"object"` // "list"
	Data    []T    `json:"data"`
	FirstID string `json:"first_id,omitempty"`
	LastID  string `json:"last_id,omitempty"`
	HasMore bool   `json:"has_more"`
}

// pageOf returns a page with the first of these elements, as many as an answer has room for, and
// at least one. more says that others follow them.
func pageOf[T any](data []T, more bool, id func(T) string) (l list[json.RawMessage], err error) {
	l = list[json.RawMessage]{Object: "list", Data: []json.RawMessage{}, HasMore: more}
	for left, n := pageBytes, 0; n < len(data); n++ {
		b, err := json.Marshal(data[n])
		if err != nil {
			return l, fault.WithKind(fault.Internal, err, "encode a list")
		}
		if left -= len(b) + 1; left < 0 && n > 0 {
			l.HasMore = true
			break
		}
		l.Data, l.LastID = append(l.Data, b), id(data[n])
	}
	if len(data) > 0 {
		l.FirstID = id(data[0])
	}
	return l, nil
}

// short returns a batch that an answer has room for: it leaves out the last errors, of which a
// failed batch has up to 100. All else of a batch is bounded.
func short(b Batch) (Batch, error) {
	for b.Errors != nil {
		body, err := json.Marshal(b)
		if err != nil {
			return b, fault.WithKind(fault.Internal, err, "encode a batch")
		}
		if len(body) <= pageBytes {
			break
		}
		e := *b.Errors
		if n := len(e.Data) / 2; n > 0 {
			e.Data = e.Data[:n]
		} else if size := len(e.Data[0].Message) / 2; size > 0 {
			first := e.Data[0]
			first.Message = text.Truncate(first.Message, size, "…")
			e.Data = []BatchError{first}
		} else {
			break
		}
		b.Errors = &e
	}
	return b, nil
}
