package serve

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"rollout/gpuworker/engine/tiny"
)

// event is an event of a stream: a delta of a choice, or its end.
type event struct {
	choice int
	delta  tiny.Delta
	ended  bool
	out    tiny.GenerationResult
	err    error
}

// eventQueue holds the events that the client has not read yet. put never blocks. The
// number of events is bounded, because a choice has at most one delta for each token
// of its context.
type eventQueue struct {
	mu     sync.Mutex
	events []event
	filled chan struct{} // has a value if events may not be empty
}

func newEventQueue() *eventQueue { return &eventQueue{filled: make(chan struct{}, 1)} }

// put adds an event.
func (q *eventQueue) put(e event) {
	q.mu.Lock()
	q.events = append(q.events, e)
	q.mu.Unlock()
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// take removes and returns all events.
func (q *eventQueue) take() []event {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := q.events
	q.events = nil
	return taken
}

// await waits for events, then removes and returns them. It returns nil if ctx is
// canceled.
func (q *eventQueue) await(ctx context.Context) []event {
	for {
		select {
		case <-q.filled:
			if events := q.take(); len(events) > 0 { // an earlier take may have removed them
				return events
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// stream answers with server-sent events, one for each delta.
func (x *exchange) stream(ctx context.Context, w http.ResponseWriter) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := newEventQueue()
	for i := range x.generations {
		go func() {
			out, err := x.generate(ctx, i, func(d tiny.Delta) { queue.put(event{choice: i, delta: d}) })
			queue.put(event{choice: i, ended: true, out: out, err: err})
		}()
	}
	events := queue.await(ctx)
	if len(events) > 0 && events[0].err != nil { // the response has not started, so it can have the error's status
		writeFault(w, events[0].err)
		return
	}
	s := &sse{w: w, control: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	x.sendStarts(s)
	outs := make([]tiny.GenerationResult, len(x.generations))
	for left := len(x.generations); left > 0; {
		for _, e := range events {
			switch {
			case e.err != nil && ctx.Err() != nil:
				return // the client has disconnected
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
			if events = queue.await(ctx); events == nil {
				return // the client has disconnected
			}
		}
	}
	if x.req.IncludeUsage {
		out := append(x.appendHead(nil, true), `"choices":[],"usage":`...)
		s.send(append(appendUsage(out, x.usage(outs)), '}'))
	}
	s.end()
}

// sendStarts sends the start of each choice: the role of a chat's answer, or an
// echoed prompt.
func (x *exchange) sendStarts(s *sse) {
	for i := range x.generations {
		out := fmt.Appendf(append(x.appendHead(nil, true), `"choices":[`...), `{"index":%d,`, i)
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

// chunk returns the data of a delta's event.
func (x *exchange) chunk(e event) []byte {
	out := fmt.Appendf(append(x.appendHead(nil, true), `"choices":[`...), `{"index":%d,`, e.choice)
	if x.chat {
		out = append(quote(append(out, `"delta":{"content":`...), e.delta.Text), '}')
	} else {
		text := e.delta.Text
		if e.delta.Prompt != nil { // with log probabilities, sendStarts has not sent the echo
			text = x.echo(e.choice) + text
		}
		out = quote(append(out, `"text":`...), text)
	}
	out = x.appendLogprobs(out, append(e.delta.Prompt, e.delta.Tokens...))
	out = append(out, `,"finish_reason":`...)
	if e.delta.Finish == "" {
		return append(out, "null}]}"...)
	}
	return append(quote(out, e.delta.Finish), `,"stop_reason":null}]}`...)
}

// sse writes server-sent events. After the first error it writes nothing more.
type sse struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     []byte
	err     error
}

// send adds an event to the buffer.
func (s *sse) send(data []byte) {
	s.buf = append(append(append(s.buf, "data: "...), data...), "\n\n"...)
}

// flush sends the buffer to the client. It returns an error if the client does not
// read it within writeTimeout.
func (s *sse) flush() error {
	if s.err == nil && len(s.buf) > 0 {
		// The error is ignored: some writers of tests support no deadline.
		_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
		if _, s.err = s.w.Write(s.buf); s.err == nil {
			s.err = s.control.Flush()
		}
		s.buf = s.buf[:0]
	}
	return s.err
}

// end sends the end of the stream.
func (s *sse) end() {
	s.buf = append(s.buf, "data: [DONE]\n\n"...)
	_ = s.flush() // ignored: the client has disconnected
}
