package regressions

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"

	"rollout/gpuworker/engine/openai"
)

// transport carries requests to a handler without a network: what the client of an
// inference server and the server do to each other can so be seen in simulated
// time. Both ends notice when the other one leaves. Once it is cut, what is
// under way breaks and nobody listens any more, as when the server dies.
type transport struct {
	to  http.Handler
	cut chan struct{} // closed; nil is never
}

// clientOver is an engine that asks an inference server, as products do.
func clientOver(t *testing.T, w transport, options ...func(*openai.Config)) *openai.Client {
	t.Helper()
	cfg := openai.Config{BaseURL: "http://engine/v1", HTTPClient: &http.Client{Transport: w}}
	for _, set := range options {
		set(&cfg)
	}
	e, err := openai.New(cfg)
	must(t, err)
	t.Cleanup(func() { must(t, e.Close()) })
	return e
}

// RoundTrip implements http.RoundTripper.
func (w transport) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-w.cut:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	default:
	}
	ctx, hangUp := context.WithCancel(r.Context())
	out, in := io.Pipe()
	reply := &reply{header: http.Header{}, body: in, begun: make(chan struct{})}
	go func() {
		select {
		case <-w.cut:
			reply.end(io.ErrUnexpectedEOF)
			hangUp()
		case <-ctx.Done(): // nobody reads any more
			_ = out.Close() // never fails
		}
	}()
	go func() {
		if r.Body != nil {
			defer r.Body.Close()
		}
		defer func() {
			switch broken := recover(); broken {
			case nil:
				reply.WriteHeader(http.StatusOK)
				reply.end(io.EOF)
			case http.ErrAbortHandler: // net/http's way to break a connection
				reply.end(io.ErrUnexpectedEOF)
			default:
				panic(broken)
			}
		}()
		w.to.ServeHTTP(reply, r.WithContext(ctx))
	}()
	select {
	case <-reply.begun:
	case <-r.Context().Done():
		hangUp()
		return nil, r.Context().Err()
	}
	if reply.status == 0 {
		hangUp()
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{StatusCode: reply.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r, Header: reply.sent,
		ContentLength: -1, Body: line{out, hangUp}}, nil
}

// line is an answer's body; closing it hangs up.
type line struct {
	*io.PipeReader
	hangUp func()
}

func (l line) Close() error {
	l.hangUp()
	return l.PipeReader.Close()
}

// reply is what a handler writes to.
type reply struct {
	header, sent http.Header
	status       int // 0: the connection broke before the headers
	body         *io.PipeWriter
	once         sync.Once
	begun        chan struct{} // closed with the headers, or with the connection
}

func (r *reply) Header() http.Header { return r.header }

func (r *reply) WriteHeader(status int) {
	r.once.Do(func() {
		r.status, r.sent = status, r.header.Clone()
		close(r.begun)
	})
}

// end ends the connection.
func (r *reply) end(why error) {
	r.once.Do(func() { close(r.begun) })
	_ = r.body.CloseWithError(why) // never fails
}

func (r *reply) Write(b []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(b)
}

// Flush implements http.Flusher.
func (r *reply) Flush() { r.WriteHeader(http.StatusOK) }
