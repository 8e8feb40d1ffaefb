package dialect

import (
	"bytes"

	"rollout/shared/jsonl"
)

// Names returns all dialects.
func Names() []Name { return []Name{Plain, OpenAI, Bedrock, Vertex} }

// Detect returns the dialect of a file by the first line of its head that has members of
// one of the dialects, or Plain. The last line of the head may be incomplete.
func Detect(head []byte) Name {
	head = bytes.TrimPrefix(head, []byte("\xEF\xBB\xBF"))
	for line := range bytes.Lines(head) {
		if n := shape(line); n != "" {
			return n
		}
	}
	return Plain
}

// shape returns the dialect of a line by its members, or "".
func shape(line []byte) Name {
	has := map[string]bool{}
	o := jsonl.ReadObject(line)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		has[string(m.Name)] = true
	}
	switch {
	case has["prompt"] || has["messages"]:
		return Plain
	case has["custom_id"] || has["body"]:
		return OpenAI
	case has["modelInput"] || has["recordId"]:
		return Bedrock
	case has["request"]:
		return Vertex
	}
	return ""
}
