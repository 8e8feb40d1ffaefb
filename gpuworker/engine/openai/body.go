package openai

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// streamMembers is appended to every request: pieces as they come, and the
// token counts at the end.
const streamMembers = `"stream":true,"stream_options":{"include_usage":true}}`

// payload is a body with streamMembers spliced in before its closing brace. The
// caller's bytes are neither copied nor changed, nor read after release: the
// transport may still be sending when an early answer is already in.
type payload struct {
	mu       sync.Mutex
	head     []byte
	tail     string
	read     bool
	released bool
}

func newPayload(body []byte) (*payload, error) {
	head := bytes.TrimSpace(body)
	if len(head) < 2 || head[0] != '{' || head[len(head)-1] != '}' {
		return nil, errors.New("the request's body is not a JSON object")
	}
	head = bytes.TrimRight(head[:len(head)-1], " \t\r\n")
	if len(head) == 1 {
		return &payload{head: head, tail: streamMembers}, nil
	}
	return &payload{head: head, tail: "," + streamMembers}, nil
}

func (p *payload) size() int64 { return int64(len(p.head) + len(p.tail)) }

// reader returns a reader of the whole payload; the transport may want several.
func (p *payload) reader() io.ReadCloser { return &payloadReader{payload: p} }

// wasRead reports whether a connection was there to send the payload over.
func (p *payload) wasRead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.read
}

// release makes all readers fail from now on.
func (p *payload) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = true
}

type payloadReader struct {
	*payload
	pos int
}

// Read implements io.Reader.
func (r *payloadReader) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.released {
		return 0, io.ErrClosedPipe
	}
	r.read = true
	n := 0
	if r.pos < len(r.head) {
		n = copy(b, r.head[r.pos:])
	}
	if at := r.pos + n - len(r.head); at >= 0 {
		n += copy(b[n:], r.tail[at:])
	}
	r.pos += n
	if n == 0 && len(b) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Close implements io.Closer.
func (r *payloadReader) Close() error { return nil }

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
