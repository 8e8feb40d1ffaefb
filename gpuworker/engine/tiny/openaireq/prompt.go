package openaireq

import (
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"rollout/gpuworker/tinylm/sampling"
)

// prompts parses the member "prompt": a string, a list of strings, a list of token
// ids, or a list of such lists.
func prompts(v jsontext.Value, vocab int) ([]Prompt, error) {
	const shape = "must be a string, a list of strings, a list of token ids or a list of such lists"
	if absent(v) {
		return nil, sampling.NewParamError("prompt", "is missing")
	}
	if v.Kind() == jsontext.KindString {
		return []Prompt{{Text: text(v)}}, nil
	}
	var list []jsontext.Value
	if json.Unmarshal(v, &list, lenient) != nil || len(list) == 0 {
		return nil, sampling.NewParamError("prompt", shape)
	}
	if list[0].Kind() == jsontext.KindNumber {
		ids, err := tokens(v, vocab)
		return []Prompt{{Tokens: ids}}, err
	}
	if len(list) > MaxChoices {
		return nil, sampling.NewParamError("prompt", "must have at most %d prompts, has %d: send several requests",
			MaxChoices, len(list))
	}
	out := make([]Prompt, len(list))
	for i, p := range list {
		switch p.Kind() {
		case jsontext.KindString:
			out[i].Text = text(p)
		case jsontext.KindBeginArray:
			ids, err := tokens(p, vocab)
			if err != nil {
				return nil, err
			}
			out[i].Tokens = ids
		default:
			return nil, sampling.NewParamError("prompt", shape)
		}
	}
	return out, nil
}

// tokens parses a list of token ids.
func tokens(v jsontext.Value, vocab int) ([]int32, error) {
	ids := []int32{}
	if err := json.Unmarshal(v, &ids); err != nil {
		return nil, sampling.NewParamError("prompt", "has a list that is not of token ids")
	}
	return ids, CheckTokens("prompt", ids, vocab)
}

// CheckTokens returns a fault if the model does not have one of the ids. name is
// the member of the request that contains them.
func CheckTokens(name string, ids []int32, vocab int) error {
	for _, id := range ids {
		if id < 0 || int(id) >= vocab {
			return sampling.NewParamError(name, "has the token %d, the model has 0 to %d", id, vocab-1)
		}
	}
	return nil
}

// Message is a message of a chat.
type Message struct {
	Role string // Example: "user"
	Text string
}

// messages parses the member "messages" of a chat.
func messages(v jsontext.Value) ([]Message, error) {
	if absent(v) {
		return nil, sampling.NewParamError("messages", "is missing")
	}
	var list []struct {
		Role    string         `json:"role"`
		Content jsontext.Value `json:"content"`
	}
	if json.Unmarshal(v, &list, lenient) != nil {
		return nil, sampling.NewParamError("messages", "must be a list of objects with role and content")
	}
	if len(list) == 0 || len(list) > maxMessages {
		return nil, sampling.NewParamError("messages", "must have from 1 to %d messages, has %d", maxMessages, len(list))
	}
	out := make([]Message, len(list))
	for i, m := range list {
		if m.Role == "" {
			return nil, sampling.NewParamError("messages", "has no role in message %d", i)
		}
		text, err := content(m.Content)
		if err != nil {
			return nil, err
		}
		out[i] = Message{Role: m.Role, Text: text}
	}
	return out, nil
}

// content returns the text of a message's content: a string, a list of text parts,
// which it joins, or null, which is "".
func content(v jsontext.Value) (string, error) {
	switch {
	case absent(v):
		return "", nil
	case v.Kind() == jsontext.KindString:
		return text(v), nil
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if json.Unmarshal(v, &parts, lenient) != nil {
		return "", sampling.NewParamError("messages", "has a content that is neither a string nor a list of text parts")
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Text == nil || p.Type != "" && p.Type != "text" {
			return "", sampling.NewParamError("messages", "has a content of type %.64q: the model supports only text", p.Type)
		}
		b.WriteString(*p.Text)
	}
	return b.String(), nil
}
