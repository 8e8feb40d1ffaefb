package openai

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json/jsontext"
)

// streamMembers is appended to every request: pieces as they come, and the
// token counts at the end.
const streamMembers = `"stream":true,"stream_options":{"include_usage":true}}`

// streamed returns the body with streamMembers spliced in before its closing
// brace, as readers that can be made again, and its size. The caller's bytes
// are neither copied nor changed.
func streamed(body []byte) (payload func() io.ReadCloser, size int64, err error) {
	head := bytes.TrimSpace(body)
	if len(head) < 2 || head[0] != '{' || head[len(head)-1] != '}' {
		return nil, 0, errors.New("the request's body is not a JSON object")
	}
	head = bytes.TrimRight(head[:len(head)-1], " \t\r\n")
	tail := "," + streamMembers
	if len(head) == 1 {
		tail = streamMembers
	}
	payload = func() io.ReadCloser {
		return &splice{head: head, tail: tail}
	}
	return payload, int64(len(head) + len(tail)), nil
}

// splice reads head, then tail.
type splice struct {
	head []byte
	tail string
}

func (s *splice) Read(p []byte) (int, error) {
	n := copy(p, s.head)
	s.head = s.head[n:]
	m := copy(p[n:], s.tail)
	s.tail = s.tail[m:]
	if n+m == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	return n + m, nil
}

func (s *splice) Close() error { return nil }

// chatBody makes a completion's body a chat's: the prompt becomes the only
// user message, and logprobs, a number there, the chat's pair of a boolean and
// top_logprobs. All other members stay as they are written.
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
