package online

import (
	"context"
	"io"
	"net/http"
	"sync"

	"rollout/gpuworker/engine"
	"rollout/shared/core/ratelimit"
	"rollout/shared/fault"
	"rollout/shared/onlinewire"
)

// PasserOf returns a Passer whose requests the target answers: that of its servers if it has some.
func PasserOf(t Target) engine.Passer {
	if p, ok := t.(Pass); ok {
		return avoiding(p)
	}
	return inProcess{t}
}

// avoiding passes requests to servers, and avoids some.
type avoiding Pass

func (a avoiding) Pass(ctx context.Context, r engine.RawRequest) (engine.RawAnswer, error) {
	if a.Avoid != nil {
		r.Avoid = a.Avoid()
	}
	return a.Servers.Pass(ctx, r)
}

// inProcess is the Passer of a target in this process.
type inProcess struct{ target Target }

func (p inProcess) Pass(ctx context.Context, r engine.RawRequest) (engine.RawAnswer, error) {
	asked, err := onlinewire.Parse(r.Body)
	if err != nil {
		return engine.RawAnswer{}, err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "/v1/"+r.Path, http.NoBody)
	if err != nil {
		return engine.RawAnswer{}, fault.WithKind(fault.Invalid, err, "make a request")
	}
	from, to := io.Pipe()
	w := &pipedAnswer{header: http.Header{}, body: to, begun: make(chan struct{})}
	go func() {
		p.target.Serve(w, Request{HTTP: q, Path: r.Path, Request: asked, Slot: heldSlot{ctx}})
		w.WriteHeader(http.StatusOK) // if it has written nothing
		_ = to.CloseWithError(ctx.Err())
	}()
	select {
	case <-w.begun:
	case <-ctx.Done():
		_ = from.CloseWithError(ctx.Err())
		return engine.RawAnswer{}, fault.WithKind(fault.Canceled, context.Cause(ctx), "ask the engine")
	}
	if w.sent.Get(onlinewire.Outcome) == onlinewire.Elsewhere {
		text, _ := io.ReadAll(io.LimitReader(from, 1<<10)) // what there is of the reason
		_ = from.Close()
		return engine.RawAnswer{}, fault.New(fault.Unavailable, "the engine does not answer: %s", text)
	}
	return engine.RawAnswer{Status: w.status, Header: w.sent, Body: from}, nil
}

// pipedAnswer writes an answer into a pipe.
type pipedAnswer struct {
	header http.Header
	body   *io.PipeWriter
	once   sync.Once
	begun  chan struct{} // closed when status and sent are there
	status int
	sent   http.Header
}

func (w *pipedAnswer) Header() http.Header { return w.header }

func (w *pipedAnswer) WriteHeader(status int) {
	if status < http.StatusOK {
		return
	}
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	})
}

func (w *pipedAnswer) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// Flush implements http.Flusher: a pipe keeps nothing back.
func (w *pipedAnswer) Flush() { w.WriteHeader(http.StatusOK) }

// heldSlot is the slot of a request whose caller has one already.
type heldSlot struct{ ctx context.Context }

func (s heldSlot) Context() context.Context { return s.ctx }
func (heldSlot) CutOff() bool               { return false }
func (heldSlot) Report(ratelimit.Report)    {}
func (heldSlot) Unused()                    {}
