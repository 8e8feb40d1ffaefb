package dialect

import (
	"bytes"

	"rollout/shared/jsonl"
)

// Names lists the dialects.
func Names() []Name { return []Name{Plain, OpenAI, Bedrock, Vertex} }

// Detect names the dialect of a file by the first line of its head that looks
// like one of them; Plain if none does. The head's last line may be cut off.
func Detect(head []byte) Name {
	head = bytes.TrimPrefix(head, []byte("\xEF\xBB\xBF"))
	for line := range bytes.Lines(head) {
		if n := shape(line); n != "" {
			return n
		}
	}
	return Plain
}

// shape names the dialect of a line by its members; "" if they say nothing.
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
