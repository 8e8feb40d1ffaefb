package fakellm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// completion is a parsed request of either endpoint.
type completion struct {
	chat          bool
	model         string
	echo          string // what the answer repeats: the prompt or the last user message
	prompt        string // all messages' text, for the digest, limits and patterns
	seed          string // as written; "" if absent
	temperature   string // as written; "" if absent
	maxTokens     int    // 0 if absent
	stream, usage bool
	logprobs      bool
	nth           int64 // the number of the request at this server, from 1
	servedModel   string
	json          bool   // the answer must be JSON, or follow a grammar
	body          []byte // the request as received
	quirks        answerQuirks
	finish        string // finish reason, once the answer has been written
}

// wireRequest is the JSON of a request of either endpoint.
type wireRequest struct {
	Model    string         `json:"model"`
	Prompt   jsontext.Value `json:"prompt"`
	Messages []struct {
		Role    string         `json:"role"`
		Content jsontext.Value `json:"content"`
	} `json:"messages"`
	Seed          jsontext.Value `json:"seed"`
	Temperature   jsontext.Value `json:"temperature"`
	MaxTokens     int            `json:"max_tokens"`
	MaxCompletion int            `json:"max_completion_tokens"`
	Logprobs      jsontext.Value `json:"logprobs"`
	Stream        bool           `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	ResponseFormat struct {
		Type string `json:"type"`
	} `json:"response_format"`
	StructuredOutputs jsontext.Value `json:"structured_outputs"` // vLLM
	GuidedJSON        jsontext.Value `json:"guided_json"`        // vLLM until 0.11
	JSONSchema        jsontext.Value `json:"json_schema"`        // SGLang, llama.cpp
}

// json reports whether the answer must be JSON.
func (w *wireRequest) json() bool {
	if w.ResponseFormat.Type == "json_object" || w.ResponseFormat.Type == "json_schema" {
		return true
	}
	for _, v := range []jsontext.Value{w.StructuredOutputs, w.GuidedJSON, w.JSONSchema} {
		if len(v) > 0 && v.Kind() != jsontext.KindNull {
			return true
		}
	}
	return false
}

func readCompletion(r io.Reader, size int64, chat bool) (*completion, error) {
	body, err := readBody(r, size)
	if err != nil {
		return nil, err
	}
	return parseCompletion(body, chat)
}

func readBody(r io.Reader, size int64) ([]byte, error) {
	var in bytes.Buffer
	if 0 < size && size <= maxBody {
		in.Grow(int(size) + bytes.MinRead)
	}
	if _, err := in.ReadFrom(r); err != nil {
		return nil, fmt.Errorf("read the request body: %w", err)
	}
	return in.Bytes(), nil
}

func parseCompletion(body []byte, chat bool) (*completion, error) {
	var w wireRequest
	if err := json.Unmarshal(body, &w, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fmt.Errorf("the request body is not a valid request: %w", err)
	}
	q := &completion{chat: chat, model: w.Model, seed: number(w.Seed), temperature: number(w.Temperature),
		maxTokens: max(w.MaxTokens, w.MaxCompletion), stream: w.Stream, usage: w.StreamOptions.IncludeUsage,
		json: w.json(), body: body,
		logprobs: len(w.Logprobs) > 0 && w.Logprobs.Kind() != jsontext.KindNull && w.Logprobs.Kind() != jsontext.KindFalse}
	if !chat {
		if w.Prompt == nil {
			return nil, errors.New("the completion request has no prompt")
		}
		q.echo = text(w.Prompt)
		q.prompt = q.echo
		return q, nil
	}
	if len(w.Messages) == 0 {
		return nil, errors.New("the chat request has no messages")
	}
	texts := make([]string, len(w.Messages))
	for i, m := range w.Messages {
		texts[i] = text(m.Content)
		if m.Role == "user" {
			q.echo = texts[i]
		}
	}
	q.prompt = strings.Join(texts, "\n")
	return q, nil
}

// number returns a number as written, "" for any other value.
func number(v jsontext.Value) string {
	if v.Kind() != jsontext.KindNumber {
		return ""
	}
	return string(v)
}

// text returns a string's text, the joined texts of an array of parts, or any
// other value's JSON.
func text(v jsontext.Value) string {
	switch v.Kind() {
	case jsontext.KindString:
		out, _ := jsontext.AppendUnquote(nil, v) // a valid string; invalid UTF-8 becomes U+FFFD
		return string(out)
	case jsontext.KindBeginArray:
		var parts []struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(v, &parts, jsontext.AllowInvalidUTF8(true)) == nil {
			var b strings.Builder
			for _, p := range parts {
				b.WriteString(p.Text)
			}
			return b.String()
		}
	}
	return string(v)
}
