package judge

import (
	"encoding/json"
	"slices"
	"strings"

	"rollout/shared/config"
	"rollout/shared/grade"
	"rollout/shared/jsonl"
)

// values returns the values of the placeholders for an answer.
func (j *Judge) values(c grade.Case) map[string]string {
	return map[string]string{
		config.PlacePrompt: promptText(c.Prompt), config.PlaceAnswer: c.Answer,
		config.PlaceExpected: valueText(c.Expected), config.PlaceRubric: j.rubric,
	}
}

// valueText returns the text of a JSON string, or any other value as it is written.
func valueText(raw json.RawMessage) string {
	if text, ok := jsonl.Unquote(nil, raw); ok {
		return string(text)
	}
	return string(raw)
}

// promptText returns a prompt, or the messages of a chat, as text. A chat of one message
// of the user is that message; otherwise each has its role before it.
func promptText(raw json.RawMessage) string {
	if len(raw) == 0 || raw[0] != '[' {
		return valueText(raw)
	}
	var roles, texts []string
	a := jsonl.ReadKnownArray(raw)
	for e, ok := a.Next(); ok; e, ok = a.Next() {
		role, text := messageText(e)
		roles, texts = append(roles, role), append(texts, text)
	}
	if slices.Equal(roles, []string{"user"}) {
		return texts[0]
	}
	for i, role := range roles {
		texts[i] = role + ": " + texts[i]
	}
	return strings.Join(texts, "\n\n")
}

// messageText returns the role and the text of a message. Calls of tools stand behind the
// text, as JSON.
func messageText(message []byte) (role, text string) {
	var calls string
	o := jsonl.ReadKnownObject(message)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		switch name := string(m.Name); {
		case string(m.Value) == "null":
		case name == "role":
			role = valueText(m.Value)
		case name == "content":
			text = contentText(m.Value)
		case name == "tool_calls":
			calls = string(m.Value)
		}
	}
	if text != "" && calls != "" {
		text += "\n"
	}
	return role, text + calls
}

// contentText returns a content: its text, or its parts, a line each. A part that is no
// text, such as an image, is its type in brackets.
func contentText(raw []byte) string {
	if raw[0] != '[' {
		return valueText(raw)
	}
	var lines []string
	a := jsonl.ReadKnownArray(raw)
	for e, ok := a.Next(); ok; e, ok = a.Next() {
		kind, text, isText := "part", "", false
		o := jsonl.ReadKnownObject(e)
		for m, ok := o.Next(); ok; m, ok = o.Next() {
			switch string(m.Name) {
			case "type":
				kind = valueText(m.Value)
			case "text":
				text, isText = valueText(m.Value), true
			}
		}
		if !isText {
			text = "[" + kind + "]"
		}
		lines = append(lines, text)
	}
	return strings.Join(lines, "\n")
}
