package online

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
	"rollout/shared/onlinewire"
)

// Passer passes requests to inference servers, and is told which of them stay silent. The
// balancer implements it.
type Passer interface {
	engine.Passer
	// Silent says that a request to the server was cancelled because nothing came.
	Silent(server string, body []byte)
}

// Pass is the Target of inference servers.
type Pass struct {
	Servers Passer
	// Silence is how long a streamed answer may stop. Whole is how long a whole answer may take.
	Silence, Whole time.Duration
	// Avoid returns servers that get requests only if no other can; may be nil.
	Avoid func() []string
}

// Serve passes the request on, and the answer back.
func (p Pass) Serve(w http.ResponseWriter, r Request) {
	ctx, cancel := context.WithCancelCause(r.HTTP.Context())
	defer cancel(nil)
	limit := p.Whole
	if r.Stream {
		limit = p.Silence
	}
	watch := time.AfterFunc(limit, func() { cancel(errSilent) })
	defer watch.Stop()
	raw := engine.RawRequest{Path: r.Path, Body: r.Body}
	if p.Avoid != nil {
		raw.Avoid = p.Avoid()
	}
	a, err := p.Servers.Pass(ctx, raw)
	if err != nil {
		p.failed(ctx, w, r, err)
		return
	}
	defer a.Body.Close()
	r.Slot.Report(a.RateLimit)
	if a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden {
		// It is about the worker's key. The client's own was right.
		refuse(w, onlinewire.Failed, http.StatusBadGateway,
			fault.New(fault.Denied, "the inference server %s refuses the worker's key", a.Server))
		return
	}
	onlinewire.CopyHeaders(w.Header(), a.Header)
	w.WriteHeader(a.Status)
	err = forward(w, a.Body, func() {
		if r.Stream {
			watch.Reset(limit)
		}
	})
	if err == nil || r.HTTP.Context().Err() != nil && !r.Slot.CutOff() {
		return // it is complete, or the client has left
	}
	w.Header().Set(http.TrailerPrefix+onlinewire.Broken, p.reason(ctx, r, a.Server, err))
}

// failed answers a request that has no answer.
func (p Pass) failed(ctx context.Context, w http.ResponseWriter, r Request, err error) {
	var died *engine.CrashError
	var of *engine.ServerError
	server, _ := engine.ServerOf(err)
	switch {
	case r.Slot.CutOff():
		refuse(w, onlinewire.Elsewhere, http.StatusServiceUnavailable, fault.New(fault.Unavailable, "the worker drains"))
	case r.HTTP.Context().Err() != nil: // the client has left
	case errors.Is(context.Cause(ctx), errSilent):
		refuse(w, onlinewire.Failed, http.StatusGatewayTimeout,
			fault.New(fault.Unavailable, "%s", p.reason(ctx, r, server, err)))
	case errors.As(err, &died), errors.As(err, &of) && of.Received: // the server may have died of it
		refuse(w, onlinewire.Failed, http.StatusBadGateway, err)
	default:
		r.Slot.Unused()
		refuse(w, onlinewire.Elsewhere, http.StatusServiceUnavailable, err)
	}
}

// reason says why an answer broke off. It tells the balancer of a server that is silent.
func (p Pass) reason(ctx context.Context, r Request, server string, err error) string {
	switch {
	case r.Slot.CutOff():
		return onlinewire.Drained
	case errors.Is(context.Cause(ctx), errSilent):
		p.Servers.Silent(server, r.Body)
		return errSilent.Error()
	}
	return "the connection to the inference server broke: " + err.Error()
}

// writeTime is how long the reader of an answer may take for one piece.
const writeTime = time.Minute

// forward writes what arrives, piece by piece, at the reader's pace. It returns the error of
// the source; nil if it came to its end or the reader has left.
func forward(w http.ResponseWriter, from io.Reader, arrived func()) error {
	conn := http.NewResponseController(w)
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			arrived()
			_ = conn.SetWriteDeadline(time.Now().Add(writeTime)) // recorders of tests have none
			if _, err := w.Write(buf[:n]); err != nil {
				return nil
			}
			if conn.Flush() != nil {
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
