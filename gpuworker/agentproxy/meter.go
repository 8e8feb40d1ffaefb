package agentproxy

import (
	"bytes"
	"encoding/json"
)

// maxLine bounds what is kept of an answer to find its token counts. A longer line of a stream
// is passed on without being looked at, and so is a longer whole answer.
const maxLine = 8 << 20

// meter finds the token counts in an answer that passes in pieces: in the only line of a whole
// one, or in the last line of a stream that has some. Counts in a stream go up, and the last
// ones stand. Without any, as where an agent leaves before the end, they are estimated: every four
// bytes of a whole answer are a token. In a stream, each event is one, or four bytes that events
// have more than the shortest one, as where a server sends several tokens at once.
type meter struct {
	line                 []byte // the part of a line that has come
	skip                 bool   // the line is too long
	whole                []byte // all lines of an answer that is not a stream
	events               int64
	eventBytes, shortest int64 // of all events, and of the shortest
	bytes                int64 // of all pieces
	counted              bool
	prompt               int64
	answer               int64
}

// see takes the next piece.
func (m *meter) see(piece []byte) {
	m.bytes += int64(len(piece))
	for len(piece) > 0 {
		end := bytes.IndexByte(piece, '\n')
		part := piece
		if end >= 0 {
			part = piece[:end]
		}
		if len(m.line)+len(part) > maxLine {
			m.skip, m.line = true, m.line[:0]
		}
		if !m.skip {
			m.line = append(m.line, part...)
		}
		if end < 0 {
			return
		}
		piece = piece[end+1:]
		m.ended()
	}
}

// ended looks at a line that is complete.
func (m *meter) ended() {
	line := m.line
	m.line = m.line[:0]
	if m.skip {
		m.skip = false
		return
	}
	data, isEvent := bytes.CutPrefix(line, []byte("data:"))
	if !isEvent {
		if len(m.whole)+len(line) <= maxLine {
			m.whole = append(m.whole, line...) // JSON means the same without the ends of lines
		}
		return
	}
	data = bytes.TrimSpace(data)
	if !bytes.Equal(data, []byte("[DONE]")) {
		if m.events == 0 || int64(len(data)) < m.shortest {
			m.shortest = int64(len(data))
		}
		m.eventBytes += int64(len(data))
		m.events++
		m.read(data)
	}
}

// tokens returns the counts of the answer to the request. The answer has ended.
func (m *meter) tokens(asked request) Tokens {
	if len(m.line) > 0 {
		m.ended()
	}
	if m.events == 0 {
		m.read(m.whole)
	}
	if m.counted {
		return Tokens{Prompt: m.prompt, Completion: m.answer}
	}
	t := Tokens{Prompt: asked.promptTokens(), Estimated: true,
		Completion: max(m.events, (m.eventBytes-m.events*m.shortest)/bytesPerToken)}
	if m.events == 0 {
		t.Completion = m.bytes / bytesPerToken
	}
	return t
}

// counts are the members that say how many tokens an answer has: of chats and completions, of
// embeddings, and of responses.
type counts struct {
	Prompt     *int64 `json:"prompt_tokens"`
	Completion *int64 `json:"completion_tokens"`
	Input      *int64 `json:"input_tokens"`
	Output     *int64 `json:"output_tokens"`
}

// read takes the counts of a JSON object that has some.
func (m *meter) read(object []byte) {
	if !bytes.Contains(object, []byte(`"usage"`)) {
		return
	}
	var answer struct {
		Usage    *counts
		Response struct{ Usage *counts } // in the events of a response
	}
	if json.Unmarshal(object, &answer) != nil {
		return
	}
	for _, c := range []*counts{answer.Usage, answer.Response.Usage} {
		if c == nil {
			continue
		}
		m.counted = true
		m.prompt = max(m.prompt, first(c.Prompt, c.Input))
		m.answer = max(m.answer, first(c.Completion, c.Output))
	}
}

// first returns the first number that is there and not negative; else 0.
func first(numbers ...*int64) int64 {
	for _, n := range numbers {
		if n != nil && *n >= 0 {
			return *n
		}
	}
	return 0
}
