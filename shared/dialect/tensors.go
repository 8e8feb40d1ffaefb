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
		if name := tensorIn(m); name != "" {
			return &fault.Error{Kind: fault.Invalid, Class: fault.Refused,
				Err: fault.New(fault.Invalid, "the row has %s, a tensor that the server would deserialize", clip([]byte(name))),
				Remedy: "remove it, or set tensors = true for the engine (engine.tensors) if you trust all who write rows " +
					"and the server is vLLM 0.11.1 or later"}
		}
	}
	return nil
}

// schemas are the members whose values describe what a server may write: the names in them
// are the user's own, and name no tensors.
var schemas = map[string]bool{"tools": true, "functions": true, "response_format": true, "text": true,
	"guided_json": true, "structured_outputs": true}

// tensorIn returns the name of the first tensor at any depth of a member, or "".
func tensorIn(m jsonl.Member) string {
	name := string(m.Name)
	switch {
	case isTensor(name):
		return name
	case schemas[name], !bytes.Contains(m.Value, []byte(tensorSuffix)) && !bytes.Contains(m.Value, []byte(`\u`)): // most
		return ""
	}
	return tensorOf(json.NewDecoder(bytes.NewReader(m.Value)))
}

func isTensor(name string) bool { return strings.HasSuffix(name, tensorSuffix) }

// tensorOf returns the name of the first tensor in the next value, or "". It sees each of
// several members with the same name, and compares names exactly, as servers do.
func tensorOf(d *json.Decoder) string {
	start, err := d.Token()
	if err != nil || start != json.Delim('{') && start != json.Delim('[') {
		return ""
	}
	for d.More() {
		key := ""
		if start == json.Delim('{') {
			token, _ := d.Token()
			if key, _ = token.(string); isTensor(key) {
				return key
			}
		}
		if key == "type" {
			var value json.RawMessage
			var text string
			if d.Decode(&value) != nil {
				return ""
			}
			if json.Unmarshal(value, &text) == nil && isTensor(text) {
				return text
			}
			if found := tensorOf(json.NewDecoder(bytes.NewReader(value))); found != "" {
				return found
			}
			continue
		}
		if found := tensorOf(d); found != "" {
			return found
		}
	}
	_, _ = d.Token() // the end of the value, which is valid JSON
	return ""
}
