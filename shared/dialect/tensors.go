package dialect

import (
	"bytes"
	"encoding/json"
	"strings"

	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// tensorSuffix ends the names of all members and parts of messages that hold tensors:
// prompt_embeds, image_embeds and audio_embeds.
const tensorSuffix = "_embeds"

// CheckTensors returns an Invalid error if the item brings serialized tensors and they are
// not allowed. A server deserializes them: in vLLM before 0.11.1 a crafted one writes
// outside its memory (CVE-2025-62164), and whoever may write a row could send it.
func (it *Item) CheckTensors(allowed bool) error {
	if allowed {
		return nil
	}
	for _, m := range it.body {
		name := string(m.Name)
		if !isTensor(name) {
			name = tensorIn(m)
		}
		if name != "" {
			return &fault.Error{Kind: fault.Invalid, Class: fault.Refused,
				Err: fault.New(fault.Invalid, "the row has %s, a tensor that the server would deserialize", clip([]byte(name))),
				Remedy: "remove it, or set engine.tensors = true if you trust all who write rows and the server is " +
					"vLLM 0.11.1 or later"}
		}
	}
	return nil
}

func isTensor(name string) bool { return strings.HasSuffix(name, tensorSuffix) }

// tensorIn returns the name of the first tensor in the parts of messages, or "".
func tensorIn(m jsonl.Member) string {
	if name := string(m.Name); name != "messages" && name != "input" {
		return ""
	}
	if !bytes.Contains(m.Value, []byte(tensorSuffix)) && !bytes.Contains(m.Value, []byte(`\u`)) { // as most
		return ""
	}
	var messages []struct{ Content json.RawMessage }
	if json.Unmarshal(m.Value, &messages) != nil { // it is a text, or the server refuses it
		return ""
	}
	for _, message := range messages {
		var parts []map[string]json.RawMessage
		if json.Unmarshal(message.Content, &parts) != nil {
			continue
		}
		for _, part := range parts {
			for name, value := range part {
				var text string
				switch {
				case isTensor(name):
					return name
				case name == "type" && json.Unmarshal(value, &text) == nil && isTensor(text):
					return text
				}
			}
		}
	}
	return ""
}
