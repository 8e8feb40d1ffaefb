package serve

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"rollout/gpuworker/engine/tiny"
)

// event is something that a stream tells: a piece of a choice, or its end.
type event struct {
	choice int
	piece  tiny.Delta
	ended  bool
	out    tiny.GenerationResult
	err    error
}

// mailbox holds events until the client has read those before. Who puts one in
// never waits: all choices together make at most a piece for each token of
// their contexts.
type mailbox struct {
	mu     sync.Mutex
	events []event
	filled chan struct{} // has a value if there are events
}

func (m *mailbox) put(e event) {
	m.mu.Lock()
	m.events = append(m.events, e)
	m.mu.Unlock()
	select {
	case m.filled <- struct{}{}:
	default:
	}
}

func (m *mailbox) take() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	taken := m.events
	m.events = nil
	return taken
}

// stream answers with server-sent events, a piece each.
func (x *exchange) stream(ctx context.Context, w http.ResponseWriter) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	box := &mailbox{filled: make(chan struct{}, 1)}
	for i := range x.questions {
		go func() {
			out, err := x.answer(ctx, i, func(p tiny.Delta) { box.put(event{choice: i, piece: p}) })
			box.put(event{choice: i, ended: true, out: out, err: err})
		}()
	}
	first := x.await(ctx, box)
	if len(first) > 0 && first[0].err != nil { // nothing was sent: the error can have a status
		writeFault(w, first[0].err)
		return
	}
	s := &sse{w: w, control: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	x.open(s)
	outs := make([]tiny.GenerationResult, len(x.questions))
	for left := len(x.questions); left > 0; {
		for _, e := range first {
			switch {
			case e.err != nil:
				s.send(problemOf(e.err).append(nil))
				s.end()
				return
			case e.ended:
				outs[e.choice] = e.out
				left--
			default:
				s.send(x.chunk(e))
			}
		}
		if s.flush() != nil {
			return
		}
		if left > 0 {
			if first = x.await(ctx, box); first == nil {
				return // the client left
			}
		}
	}
	if x.req.IncludeUsage {
		out := append(x.head(nil, true), `"choices":[],"usage":`...)
		s.send(append(appendUsage(out, x.usage(outs)), '}'))
	}
	s.end()
}

// await waits for events; nil if the client leaves first.
func (x *exchange) await(ctx context.Context, box *mailbox) []event {
	for {
		select {
		case <-box.filled: // what it told of may have been taken already
			if events := box.take(); len(events) > 0 {
				return events
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// open sends what choices begin with: a chat's role, or an echoed prompt.
func (x *exchange) open(s *sse) {
	for i := range x.questions {
		out := fmt.Appendf(append(x.head(nil, true), `"choices":[`...), `{"index":%d,`, i)
		switch {
		case x.chat:
			out = append(out, `"delta":{"role":"assistant","content":""},"logprobs":null`...)
		case x.req.Echo && x.req.Logprobs < 0:
			out = append(quote(append(out, `"text":`...), x.echo(i)), `,"logprobs":null`...)
		default:
			continue
		}
		s.send(append(out, `,"finish_reason":null}]}`...))
	}
}

// chunk renders a piece of a choice.
func (x *exchange) chunk(e event) []byte {
	out := fmt.Appendf(append(x.head(nil, true), `"choices":[`...), `{"index":%d,`, e.choice)
	if x.chat {
		out = append(quote(append(out, `"delta":{"content":`...), e.piece.Text), '}')
	} else {
		text := e.piece.Text
		if e.piece.Prompt != nil { // else it was sent at once
			text = x.echo(e.choice) + text
		}
		out = quote(append(out, `"text":`...), text)
	}
	out = x.appendLogprobs(out, append(e.piece.Prompt, e.piece.Tokens...))
	out = append(out, `,"finish_reason":`...)
	if e.piece.Finish == "" {
		return append(out, "null}]}"...)
	}
	return append(quote(out, e.piece.Finish), `,"stop_reason":null}]}`...)
}

// sse writes server-sent events. The first error of a write stays.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     []byte
	err     error
}

func (s *sse) send(data []byte) {
	s.buf = append(append(append(s.buf, "data: "...), data...), "\n\n"...)
}

// flush hands the client what there is. One that does not read it in time is
// given up.
func (s *sse) flush() error {
	if s.err == nil && len(s.buf) > 0 {
		_ = s.control.SetWriteDeadline(time.Now().Add(writeTime)) // not all writers have one
		if _, s.err = s.w.Write(s.buf); s.err == nil {
			s.err = s.control.Flush()
		}
		s.buf = s.buf[:0]
	}
	return s.err
}

func (s *sse) end() {
	s.buf = append(s.buf, "data: [DONE]\n\n"...)
	_ = s.flush() // a client that is gone needs no end
}
