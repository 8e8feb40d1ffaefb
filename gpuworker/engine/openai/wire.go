package openai

import (
	"bytes"
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// wireAnswer is a chunk of a stream or a whole answer, of either endpoint.
// What is not needed is not decoded; what varies between servers is kept raw.
type wireAnswer struct {
	Object  lenient        `json:"object"`
	Model   lenient        `json:"model"`
	Choices []wireChoice   `json:"choices"`
	Usage   jsontext.Value `json:"usage"`
	Error   jsontext.Value `json:"error"`
}

type wireChoice struct {
	Index        int            `json:"index"`
	Text         string         `json:"text"`    // completions
	Delta        wireMessage    `json:"delta"`   // chats, a chunk
	Message      wireMessage    `json:"message"` // chats, whole
	Logprobs     jsontext.Value `json:"logprobs"`
	FinishReason lenient        `json:"finish_reason"`
}

type wireMessage struct {
	Content          string         `json:"content"`
	ReasoningContent lenient        `json:"reasoning_content"` // vLLM, SGLang, llama.cpp
	Reasoning        lenient        `json:"reasoning"`         // newer vLLM, hosted APIs
	ToolCalls        jsontext.Value `json:"tool_calls"`
}

// wireToolCall is a tool call's piece; in a whole answer it has no index.
type wireToolCall struct {
	Index    int     `json:"index"`
	ID       lenient `json:"id"`
	Type     lenient `json:"type"`
	Function struct {
		Name      lenient        `json:"name"`
		Arguments jsontext.Value `json:"arguments"` // a string; an object from some servers
	} `json:"function"`
}

type wireUsage struct {
	PromptTokens     int64 `json:"prompt_tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
}

// lenient is a string where servers may also send something else, which counts
// as nothing.
type lenient string

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (s *lenient) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	*s = ""
	if d.PeekKind() != jsontext.KindString {
		return d.SkipValue()
	}
	t, err := d.ReadToken()
	if err == nil {
		*s = lenient(t.String())
	}
	return err
}

// errMalformed is an answer that is no JSON, or has no such shape.
var errMalformed = errors.New("the answer is malformed")

// decode replaces the answer with the decoded data.
func (a *wireAnswer) decode(data []byte) error {
	*a = wireAnswer{Choices: a.Choices[:0]}
	err := unmarshal(data, a)
	if err == nil {
		return nil
	}
	if fixed, found := withoutNaN(data); found {
		*a = wireAnswer{Choices: a.Choices[:0]}
		if unmarshal(fixed, a) == nil {
			return nil
		}
	}
	return malformed(err, data)
}

// isError reports whether the server sent an error object instead.
func (a *wireAnswer) isError() bool {
	return a.Object == "error" || len(a.Error) > 0 && a.Error.Kind() != jsontext.KindNull
}

// unmarshal decodes what servers send: invalid UTF-8 and lone surrogates
// become U+FFFD, the last of equal names counts.
func unmarshal(data []byte, v any) error {
	return json.Unmarshal(data, v, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
}

// withoutNaN replaces NaN, Infinity and -Infinity outside of strings by null.
func withoutNaN(data []byte) (fixed []byte, found bool) {
	for i := 0; i < len(data); {
		if n := stringLen(data[i:]); n > 0 {
			fixed = append(fixed, data[i:i+n]...)
			i += n
			continue
		}
		token := 0
		for _, name := range []string{"NaN", "-NaN", "Infinity", "-Infinity"} {
			if bytes.HasPrefix(data[i:], []byte(name)) {
				token = len(name)
			}
		}
		if token > 0 {
			fixed, found = append(fixed, "null"...), true
			i += token
			continue
		}
		fixed = append(fixed, data[i])
		i++
	}
	return fixed, found
}

// stringLen returns the length of the string literal that data starts with, 0
// if it starts with none.
func stringLen(data []byte) int {
	if data[0] != '"' {
		return 0
	}
	for i := 1; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}

// tidy returns raw JSON that any encoder takes: compact, valid UTF-8, no
// duplicate names. False if it can't be made so.
func tidy(raw []byte) ([]byte, bool) {
	out, err := jsontext.AppendFormat(nil, raw, jsontext.AllowInvalidUTF8(true))
	return out, err == nil
}
