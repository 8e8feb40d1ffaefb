package openai

import (
	"bytes"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"rollout/gpuworker/engine"
)

// streamMembers returns what is appended to a request: it asks for a stream, with the
// token counts at its end.
func streamMembers(r engine.Request) string {
	switch {
	case r.Endpoint != engine.Chat && r.Endpoint != engine.Completion && r.Endpoint != engine.Responses:
		return ""
	case r.Whole || r.Options != nil && r.Options.Whole:
		return ""
	case r.Endpoint == engine.Responses || r.Options != nil && r.Options.NoStreamOptions:
		return `"stream":true`
	}
	return `"stream":true,"stream_options":{"include_usage":true}`
}

// payload returns the body with streamMembers inserted before its closing brace.
// It copies the body: the transport may still send it after an early answer, when
// the caller reuses its memory.
func payload(body []byte, streamMembers string) ([]byte, error) {
	head := bytes.TrimSpace(body)
	if len(head) < 2 || head[0] != '{' || head[len(head)-1] != '}' {
		return nil, errors.New("the request's body is not a JSON object")
	}
	head = bytes.TrimRight(head[:len(head)-1], " \t\r\n")
	out := make([]byte, 0, len(head)+2+len(streamMembers))
	out = append(out, head...)
	if len(head) > 1 && streamMembers != "" {
		out = append(out, ',')
	}
	return append(append(out, streamMembers...), '}'), nil
}

// chatBody turns a completion's body into a chat's. The prompt becomes the only
// user message. The number logprobs becomes the boolean logprobs and top_logprobs.
// All other members stay as they are written.
func chatBody(body []byte) ([]byte, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	out, found := []byte{'{'}, false
	for d.PeekKind() == jsontext.KindString {
		name, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		v, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		switch {
		case key == "prompt" && v.Kind() == jsontext.KindString:
			found = true
			out = append(append(append(out, `"messages":[{"role":"user","content":`...), v...), "}]"...)
		case key == "prompt":
			return nil, errors.New("its prompt is not a string")
		case key == "logprobs" && v.Kind() == jsontext.KindNumber:
			out = append(append(out, `"logprobs":true,"top_logprobs":`...), v...)
		default:
			quoted, err := jsontext.AppendQuote(nil, key)
			if err != nil {
				return nil, err
			}
			out = append(append(append(out, quoted...), ':'), v...)
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	if !found {
		return nil, errors.New("it has no prompt")
	}
	return append(out, '}'), nil
}
