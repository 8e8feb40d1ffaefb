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

// transport carries requests to a handler without a network, so that the client
// of an inference server and the server run in simulated time. Each end notices
// when the other one leaves. Once it is cut, requests in flight break and new
// ones are refused, as when the server has died.
type transport struct {
	to  http.Handler
	cut chan struct{} // closed to cut it; nil never cuts
}

// clientOver is the product's client of an inference server, over a transport.
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
	ctx, cancel := context.WithCancel(r.Context())
	out, in := io.Pipe()
	reply := &reply{header: http.Header{}, body: in, begun: make(chan struct{})}
	go func() {
		select {
		case <-w.cut:
			reply.end(io.ErrUnexpectedEOF)
			cancel()
		case <-ctx.Done(): // the client left
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
		cancel()
		return nil, r.Context().Err()
	}
	if reply.status == 0 {
		cancel()
		return nil, io.ErrUnexpectedEOF
	}
	return &http.Response{StatusCode: reply.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header:        reply.sent,
		ContentLength: -1, Body: responseBody{out, cancel}}, nil
}

// responseBody is an answer's body. Close cancels the request.
type responseBody struct {
	*io.PipeReader
	cancel func()
}

func (b responseBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}

// reply is the http.ResponseWriter of a handler.
type reply struct {
	header, sent http.Header
	status       int // 0 if the connection broke before the headers
	body         *io.PipeWriter
	once         sync.Once
	begun        chan struct{} // closed with the headers, or when the connection breaks
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
