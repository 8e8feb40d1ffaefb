package dialect

import (
	"slices"
	"strconv"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// RequestDigest returns a digest of the item's endpoint and request. Items of one run with
// the same digest make the same request, because they share the run's model and
// sampling params.
func (it *Item) RequestDigest() identity.ContentID {
	if len(it.params) == 0 {
		return identity.Request(string(it.Endpoint), it.Request)
	}
	// JSON has no zero byte, so that no request without parameters is the same.
	return identity.Request(string(it.Endpoint), slices.Concat(it.Request, []byte{0}, it.params))
}

// Sampled reports whether a server may answer the item's request differently each time:
// the temperature is not 0 or not given, or several answers are wanted.
func (it *Item) Sampled(s config.Sampling) bool {
	if it.AnswerCount(s) > 1 {
		return true
	}
	for _, m := range it.body {
		if string(m.Name) == "temperature" {
			t, err := strconv.ParseFloat(string(m.Value), 64)
			return err != nil || t != 0
		}
	}
	return s.Temperature == nil || *s.Temperature != 0
}

// copyOf is the member of a copy's output row with the id of the original item.
const copyOf = "copy_of"

// AppendCopy appends the output row of an item with the same request as an earlier item,
// whose output row is original. It is the same row with the copy's own id and unknown
// members, with no tokens used, and with the original's id as copy_of. id is the result
// of RowID for the copy. A row that AppendOutput did not write is Corrupt.
func AppendCopy(dst []byte, it *Item, id string, original []byte) ([]byte, error) {
	w := row{b: append(dst, '{')}
	name := nameOf(id)
	var of []byte
	response := false // the row has a plain response of its own
	ended := false    // the members that are the line's unknown ones follow
	o := jsonl.ReadObject(original)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		member := string(m.Name)
		switch {
		case member == idName(it.dialect):
			of = m.Value
			w.id(member, it.rawID, id)
		case member == it.key:
			w.member(m)
		case it.dialect == Plain && member == "response" && !ended:
			response = w.copyResponse(m)
		case it.dialect == Plain && member == "completions":
			w.copyCompletions(m)
		case !isReserved(it.dialect, m.Name): // an unknown member of the original
		case it.dialect == OpenAI && member == "id":
			w.text("id", "batch_req_"+name)
		case it.dialect == OpenAI && member == "response":
			w.copyOpenAI(it.Endpoint, m, name)
		case it.dialect == Bedrock && member == "modelOutput":
			w.copyMessage(member, m.Value, name)
		case it.dialect == Bedrock && member == "modelOutputs":
			w.open(member, '[')
			a := jsonl.ReadKnownArray(m.Value)
			for e, ok := a.Next(); ok; e, ok = a.Next() {
				w.copyMessage("", e, name)
			}
			w.end(']')
		default:
			w.unused(m)
			ended = ended || member == "generated_at"
		}
	}
	if o.Err() != nil || of == nil {
		return dst, fault.New(fault.Corrupt, "the row to copy is not an output row of the %s dialect", it.dialect)
	}
	w.raw(copyOf, of)
	w.extra(it, response)
	return w.close(), nil
}

// copyOpenAI copies a response with ids of the copy.
func (w *row) copyOpenAI(e Endpoint, response jsonl.Member, name string) {
	w.within("response", response.Value, func(m jsonl.Member) {
		switch string(m.Name) {
		case "request_id":
			w.text("request_id", "req_"+name)
		case "body":
			w.within("body", m.Value, func(m jsonl.Member) {
				if string(m.Name) == "id" {
					w.text("id", completionName(e, name))
				} else {
					w.unused(m)
				}
			})
		default:
			w.member(m)
		}
	})
}

// copyResponse copies the rest of an answer in a plain row, without its usage. It
// reports whether anything is left.
func (w *row) copyResponse(response jsonl.Member) bool {
	start, left := len(w.b), false
	w.within("response", response.Value, func(m jsonl.Member) {
		if string(m.Name) != "usage" {
			left = true
			w.member(m)
		}
	})
	if !left {
		w.b = w.b[:start]
	}
	return left
}

// copyCompletions copies the answers of a plain row with several.
func (w *row) copyCompletions(completions jsonl.Member) {
	w.open("completions", '[')
	a := jsonl.ReadKnownArray(completions.Value)
	for e, ok := a.Next(); ok; e, ok = a.Next() {
		w.within("", e, func(m jsonl.Member) {
			if string(m.Name) == "response" {
				w.copyResponse(m)
			} else {
				w.member(m)
			}
		})
	}
	w.end(']')
}

// copyMessage copies a message with the id of the copy.
func (w *row) copyMessage(as string, message []byte, name string) {
	w.within(as, message, func(m jsonl.Member) {
		if string(m.Name) == "id" {
			w.text("id", "msg_"+name)
		} else {
			w.unused(m)
		}
	})
}

// unused writes a member of a row, with 0 for all counts of tokens and without their
// details.
func (w *row) unused(m jsonl.Member) {
	switch string(m.Name) {
	case "usage", "usageMetadata":
		w.within(string(m.Name), m.Value, func(m jsonl.Member) {
			switch name := string(m.Name); name {
			case "prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens",
				"promptTokenCount", "candidatesTokenCount", "totalTokenCount":
				w.int(name, 0)
			}
		})
	case "response": // of the vertex dialect; rows of the others do not get here with it
		w.within("response", m.Value, w.unused)
	default:
		w.member(m)
	}
}

// within writes an object; write writes each of its members.
func (w *row) within(name string, object []byte, write func(jsonl.Member)) {
	w.open(name, '{')
	o := jsonl.ReadKnownObject(object)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		write(m)
	}
	w.end('}')
}

// member writes a member of an output row unchanged.
func (w *row) member(m jsonl.Member) {
	w.b = append(append(append(w.b, m.RawName...), ':'), m.Value...)
	w.b = append(w.b, ',')
}
