package openai

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
)

// Pass posts the body as it is, with the client's own headers and query, and returns the
// response when its headers have arrived; see engine.Passer.
func (c *Client) Pass(ctx context.Context, r engine.RawRequest) (engine.RawAnswer, error) {
	t := c.target("POST", r.Path)
	inner, cancel := context.WithCancel(ctx)
	b := &rawBody{client: c, caller: ctx, cancel: cancel, target: t}
	if !c.calls.add(b, cancel) {
		cancel()
		return engine.RawAnswer{}, c.closedFault()
	}
	resp, err := c.send(inner, t, r.Body)
	if err != nil {
		b.end()
		if ctx.Err() != nil {
			err = fault.WithKind(fault.Canceled, context.Cause(ctx), "%s", t.op)
		}
		return engine.RawAnswer{}, err
	}
	b.ReadCloser = resp.Body
	a := engine.RawAnswer{Status: resp.StatusCode, Header: resp.Header, Body: b, RateLimit: rateLimitOf(resp.Header)}
	if resp.StatusCode < http.StatusBadRequest {
		return a, nil
	}
	said, err := c.errorBody(resp)
	if err != nil {
		err = b.fault(err)
		_ = b.Close()
		return engine.RawAnswer{}, err
	}
	a.Header = resp.Header.Clone()
	a.Header.Del("Content-Encoding")
	b.ReadCloser = replaced{bytes.NewReader(said), resp.Body}
	if resp.StatusCode == http.StatusTooManyRequests {
		// The words of the refusal say what is limited.
		if s := parseServerError(said); !oneOf(quotaCodes, s.code) && !oneOf(quotaCodes, s.kind) {
			a.RateLimit = refusalOf(resp.Header, s)
		}
	}
	return a, nil
}

// send makes one HTTP request of the bytes.
func (c *Client) send(ctx context.Context, t target, body []byte) (*http.Response, error) {
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	reader := func() io.ReadCloser { return io.NopCloser(bytes.NewReader(body)) }
	req := (&http.Request{Method: http.MethodPost, URL: t.url, Host: t.url.Host, Header: c.header(ctx),
		ProtoMajor: 1, ProtoMinor: 1, Body: reader(), ContentLength: int64(len(body)),
		GetBody: func() (io.ReadCloser, error) { return reader(), nil }}).WithContext(ctx)
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return nil, noAnswer(t, err, connected)
	}
	return resp, nil
}

// errorBody reads the body of an error: unpacked, up to maxErrorBody, and without the key,
// which some servers repeat.
func (c *Client) errorBody(resp *http.Response) ([]byte, error) {
	in, err := unpacked(resp)
	if err != nil {
		return nil, err
	}
	said, err := io.ReadAll(io.LimitReader(in, maxErrorBody))
	if err != nil {
		return nil, err
	}
	return []byte(c.conceal(string(said))), nil
}

// replaced is the body of a response that is read in place of its own.
type replaced struct {
	io.Reader
	io.Closer
}

// rawBody is the body of an answer that is passed on.
type rawBody struct {
	io.ReadCloser
	client *Client
	caller context.Context
	cancel context.CancelFunc
	target target
}

// Read implements io.Reader.
func (b *rawBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	return n, b.fault(err)
}

// fault returns the fault of an answer that broke off.
func (b *rawBody) fault(err error) error {
	if b.caller.Err() != nil {
		return fault.WithKind(fault.Canceled, context.Cause(b.caller), "%s", b.target.op)
	}
	return noAnswer(b.target, err, true)
}

// Close ends the request.
func (b *rawBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

func (b *rawBody) end() {
	b.cancel()
	b.client.calls.remove(b)
}
