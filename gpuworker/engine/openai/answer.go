package openai

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
)

// Answer posts the request's bytes, with the members stream and
// stream_options appended, and reads the answer: a stream of server-sent
// events, or one JSON object from a server that does not stream.
//
// A server without /completions (404 or 405) is asked over /chat/completions
// from then on, the prompt as the only user message. One without
// /chat/completions can't answer chats: Invalid, saying so.
//
// The finish reasons error and abort are faults (Corrupt): such a text ends
// anywhere. An answer whose stream ends after its finish reason is complete
// even without the closing [DONE].
func (c *Client) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	k := c.memory.Get().(*call)
	defer c.release(k)
	inner, cancel := context.WithCancel(ctx)
	defer cancel()
	if !c.calls.add(k, cancel) {
		return engine.Answer{}, c.closedFault()
	}
	defer c.calls.remove(k)
	k.progress, k.cancel = progress, cancel

	a, err := c.answer(inner, k, r)
	if err == nil {
		return a, nil
	}
	if ctx.Err() != nil {
		err = fault.WithKind(fault.Canceled, context.Cause(ctx), "%s", c.chat.op)
	} else if c.calls.isClosed() {
		err = c.closedFault()
	}
	return engine.Answer{}, charge(err, k.parts.spent())
}

// charge says in the error what its request cost.
func charge(err error, u engine.Usage) error {
	var e *fault.Error
	if u == (engine.Usage{}) || !errors.As(err, &e) {
		return err
	}
	told := *e
	told.Err = &engine.PartialUsage{Usage: u, Err: e.Err}
	return &told
}

func (c *Client) closedFault() error {
	return fault.WithKind(fault.Unavailable, errors.New("the engine's client is closed"), "%s", c.chat.op)
}

// answer asks the endpoint, or the one that stands in for it.
func (c *Client) answer(ctx context.Context, k *call, r engine.Request) (engine.Answer, error) {
	switch r.Endpoint {
	case engine.Chat:
		a, err := c.ask(ctx, k, c.chat, r.Body)
		if errors.Is(err, errNoRoute) {
			err = c.noChat(c.chat.op, "send prompts instead of messages, or give the base URL of a server with a chat template")
		}
		return a, err
	case engine.Completion:
		return c.complete(ctx, k, r.Body)
	}
	return engine.Answer{}, refused("POST "+c.base.String(), "endpoint %q is neither chat nor completion", r.Endpoint)
}

// complete asks for a completion, falling back to chat.
func (c *Client) complete(ctx context.Context, k *call, body []byte) (engine.Answer, error) {
	if !c.chatOnly.Load() {
		a, err := c.ask(ctx, k, c.comp, body)
		if !errors.Is(err, errNoRoute) {
			return a, err
		}
	}
	chat, err := chatBody(body)
	if err != nil {
		return engine.Answer{}, refused(c.comp.op, "the server has no such endpoint, and the request can't be made a chat: %w", err)
	}
	k.reset()
	a, err := c.ask(ctx, k, c.chat, chat)
	if errors.Is(err, errNoRoute) {
		return a, c.noChat(c.comp.op, "check the path of the base URL; OpenAI-compatible servers mostly want it to end in /v1")
	}
	if c.chatOnly.CompareAndSwap(false, true) {
		c.logger.Info("the inference server has no completions endpoint; prompts are sent as chats", "url", c.comp.url.String())
	}
	return a, err
}

func (c *Client) noChat(op, remedy string) error {
	return &fault.Error{Kind: fault.Invalid, Class: fault.Refused, Op: op, Remedy: remedy,
		Err: errors.New("the server has no /chat/completions endpoint")}
}

// post makes one HTTP request and reads its answer.
func (c *Client) post(ctx context.Context, k *call, t target, body []byte) (engine.Answer, error) {
	sent, err := payload(body)
	if err != nil {
		return engine.Answer{}, refused(t.op, "%w", err)
	}
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	// Of a reader that net/http knows to be of memory, header and body go out in
	// one write.
	reader := func() io.ReadCloser { return io.NopCloser(bytes.NewReader(sent)) }
	req := (&http.Request{Method: http.MethodPost, URL: t.url, Host: t.url.Host, Header: c.header(ctx),
		ProtoMajor: 1, ProtoMinor: 1, Body: reader(), ContentLength: int64(len(sent)),
		GetBody: func() (io.ReadCloser, error) { return reader(), nil }}).WithContext(ctx)
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return engine.Answer{}, noAnswer(t, err, connected)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return engine.Answer{}, c.statusFault(t, resp)
	}
	k.progress()
	k.body = body
	return c.read(k, t, resp)
}

// read reads the answer from a response with status 200.
func (c *Client) read(k *call, t target, resp *http.Response) (engine.Answer, error) {
	k.in.Reset(resp.Body)
	var err error
	if streams(resp.Header.Get("Content-Type")) {
		err = k.readStream()
	} else {
		err = k.readWhole()
	}
	if err == nil && k.lost() {
		err = engine.ErrWhitespace
	}
	var sent *sentError
	if errors.As(err, &sent) {
		return engine.Answer{}, c.bodyFault(t, http.StatusInternalServerError, sent.body, retryAfter(resp.Header))
	}
	if err != nil {
		return engine.Answer{}, answerFault(t, err)
	}
	a, err := k.parts.answer()
	if err != nil {
		return engine.Answer{}, answerFault(t, err)
	}
	k.drain()
	return a, nil
}

// streams reports whether a content type is a stream's.
func streams(contentType string) bool {
	if contentType == "text/event-stream; charset=utf-8" { // vLLM's, SGLang's and llama.cpp's
		return true
	}
	media, _, _ := mime.ParseMediaType(contentType)
	return media == "text/event-stream"
}

// drainTime is how long a finished answer waits for the end of its stream,
// which mostly is in the same packet.
const drainTime = 50 * time.Millisecond

// drain reads the stream's end, without which its connection is not used
// again. A server that keeps the stream open loses the connection.
func (k *call) drain() {
	if k.atEnd {
		return
	}
	t := time.AfterFunc(drainTime, k.cancel)
	defer t.Stop()
	// Discard ends at the stream's end, an error or the cancel: all are fine,
	// as the answer is complete.
	_, _ = k.in.Discard(4 << 10)
}

// withoutURL unwraps the error that repeats the whole URL.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
