package openai

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
)

// Answer posts the request's bytes, with the members stream and stream_options
// appended, and reads the answer: a stream of server-sent events, or one JSON
// object from a server that does not stream.
//
// If the server has no /completions (404 or 405), or says that the model answers chats
// alone, completions are sent to /chat/completions, with the prompt as the only user
// message; from the third such answer on at once. A server that has answered a
// completion has the endpoint, whatever it says later. If it has no /chat/completions,
// chats are Invalid.
//
// An answer is complete if the server gives a finish reason, or ends it with [DONE],
// or sends it as one JSON value. Anything else may be half an answer: it is
// Unavailable, as from a broken connection. Finish reasons that say that the server
// gave up, such as error and abort, are Corrupt faults.
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
		if a.Usage.Unknown && r.CountTokens {
			c.estimate(ctx, r.Body, &a)
		}
		return a, nil
	}
	if ctx.Err() != nil {
		err = fault.WithKind(fault.Canceled, context.Cause(ctx), "%s", c.chat.op)
	} else if c.calls.isClosed() {
		err = c.closedFault()
	}
	return engine.Answer{}, withUsage(err, k.parts.usageSoFar())
}

// withUsage adds to the error what its request cost.
func withUsage(err error, u engine.Usage) error {
	var e *fault.Error
	if u == (engine.Usage{}) || !errors.As(err, &e) {
		return err
	}
	out := *e
	out.Err = &engine.PartialUsage{Usage: u, Err: e.Err}
	return &out
}

func (c *Client) closedFault() error {
	return fault.WithKind(fault.Unavailable, errors.New("the engine's client is closed"), "%s", c.chat.op)
}

// answer sends the body to the request's endpoint, or to the one that replaces it.
func (c *Client) answer(ctx context.Context, k *call, r engine.Request) (engine.Answer, error) {
	if r.Path != "" {
		u := *c.base
		u.Path = r.Path
		k.parts.any = true
		return c.ask(ctx, k, c.at("POST", &u), r)
	}
	switch r.Endpoint {
	case engine.Chat:
		a, err := c.ask(ctx, k, c.chat, r)
		if errors.Is(err, errNoRoute) {
			err = c.noChat(c.chat.op, err,
				"send prompts instead of messages, or give the base URL of a server with a chat template")
		}
		return a, err
	case engine.Completion:
		return c.complete(ctx, k, r)
	case engine.Responses, engine.Embeddings, engine.Rerank, engine.Score:
		t := c.target("POST", string(r.Endpoint))
		k.parts.any = true
		a, err := c.ask(ctx, k, t, r)
		if errors.Is(err, errNoRoute) {
			err = &fault.Error{Kind: fault.Invalid, Class: fault.Refused, Op: t.op,
				Err:    err,
				Remedy: "give a server that has it, or the path by request.endpoint"}
		}
		return a, err
	}
	return engine.Answer{}, refused("POST "+c.base.String(), "the endpoint %q is not known", r.Endpoint)
}

// complete asks for a completion, and falls back to a chat.
func (c *Client) complete(ctx context.Context, k *call, r engine.Request) (engine.Answer, error) {
	var noRoute error
	if c.fellBack.Load() < fallBacks {
		var a engine.Answer
		if a, noRoute = c.ask(ctx, k, c.comp, r); noRoute == nil && !c.completes.Load() {
			c.completes.Store(true)
			c.fellBack.Store(0)
		}
		if !errors.Is(noRoute, errNoRoute) || c.completes.Load() && !errors.Is(noRoute, errOnlyChats) {
			return a, noRoute
		}
	}
	chat, err := chatBody(r.Body)
	if err != nil {
		return engine.Answer{}, refused(c.comp.op, "the request can't be sent as a chat: %w",
			errors.Join(noRoute, err))
	}
	k.reset()
	r.Body = chat
	a, err := c.ask(ctx, k, c.chat, r)
	if errors.Is(err, errNoRoute) {
		return a, c.noChat(c.comp.op, err,
			"check the path of the base URL; for most OpenAI-compatible servers it ends in /v1")
	}
	if err == nil && !c.completes.Load() && c.fellBack.Add(1) == fallBacks {
		c.logger.Info("the inference server answers no completions; prompts are sent as chats",
			"url", c.comp.url.String())
	}
	return a, err
}

// fallBacks is how many completions a server must answer by chat alone until it counts
// as one without the endpoint of completions.
const fallBacks = 3

func (c *Client) noChat(op string, err error, remedy string) error {
	return &fault.Error{Kind: fault.Invalid, Class: fault.Refused, Op: op, Remedy: remedy,
		Err: fmt.Errorf("the server has no /chat/completions endpoint: %w", err)}
}

// ask posts the body. If the client or the request clamps and the server says that only max_tokens
// is too large, it posts the body once more with the max_tokens that fit.
func (c *Client) ask(ctx context.Context, k *call, t target, r engine.Request) (engine.Answer, error) {
	a, err := c.post(ctx, k, t, r)
	var over *overflow
	if !c.clamp && !r.FitMaxTokens || !errors.As(err, &over) {
		return a, err
	}
	o := *over
	if o.atLeast && !c.countTokens(ctx, r.Body, &o) {
		return a, err
	}
	lowered, ok := lowerMaxTokens(r.Body, o.limit-o.prompt)
	if !ok {
		return a, err
	}
	anyObject := k.parts.any
	k.reset()
	k.parts.any = anyObject
	r.Body = lowered
	a, err = c.post(ctx, k, t, r)
	a.MaxTokens = o.limit - o.prompt
	return a, err
}

// post makes one HTTP request and reads its answer.
func (c *Client) post(ctx context.Context, k *call, t target, r engine.Request) (engine.Answer, error) {
	sent, err := payload(r.Body, streamMembers(r))
	if err != nil {
		return engine.Answer{}, refused(t.op, "%w", err)
	}
	connected := false
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected = true }})
	// net/http recognises this reader as memory, and sends header and body in one
	// write.
	reader := func() io.ReadCloser { return io.NopCloser(bytes.NewReader(sent)) }
	header := c.header(ctx)
	if r.Options != nil {
		t.url, header = withOptions(t.url, header, r.Options)
	}
	req := (&http.Request{Method: http.MethodPost, URL: t.url, Host: t.url.Host, Header: header,
		ProtoMajor: 1, ProtoMinor: 1, Body: reader(), ContentLength: int64(len(sent)),
		GetBody: func() (io.ReadCloser, error) { return reader(), nil }}).WithContext(ctx)
	resp, err := c.transport.RoundTrip(req)
	if err != nil {
		return engine.Answer{}, noAnswer(t, err, connected)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return engine.Answer{}, c.statusFault(t, resp)
	}
	k.progress()
	k.body = r.Body
	return c.read(k, t, resp)
}

// withOptions returns the URL and the header of a request with options.
func withOptions(u *url.URL, header http.Header, o *engine.Options) (*url.URL, http.Header) {
	if len(o.Query) > 0 {
		with := *u
		query := with.Query()
		maps.Copy(query, o.Query)
		with.RawQuery = query.Encode()
		u = &with
	}
	if len(o.Header) > 0 {
		header = header.Clone()
		maps.Copy(header, o.Header)
	}
	return u, header
}

// read reads the answer from a response with a status of success.
func (c *Client) read(k *call, t target, resp *http.Response) (engine.Answer, error) {
	body, err := unpacked(resp)
	if err == nil {
		k.framed = resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0
		k.in.Reset(body)
		err = k.readBody()
	}
	if err == nil && k.whitespaceOnly() {
		err = engine.ErrWhitespace
	}
	var sent *sentError
	if errors.As(err, &sent) {
		return engine.Answer{}, c.bodyFault(t, http.StatusInternalServerError, sent.body, resp.Header)
	}
	if err != nil {
		return engine.Answer{}, answerFault(t, err)
	}
	a, err := k.parts.answer()
	if err != nil {
		return engine.Answer{}, answerFault(t, err)
	}
	k.drain()
	a.RateLimit = rateLimitOf(resp.Header)
	return a, nil
}

// drainTime bounds the wait for the stream's end after a finished answer. Usually
// it is in the same packet.
const drainTime = 50 * time.Millisecond

// drain reads the stream's end, so that the connection can be reused. If the server
// keeps the stream open, the connection is closed.
func (k *call) drain() {
	if k.atEnd {
		return
	}
	t := time.AfterFunc(drainTime, k.cancel)
	defer t.Stop()
	// Discard ends with the stream, with an error or with the cancel. The answer is
	// complete in any case.
	_, _ = k.in.Discard(4 << 10)
}

// withoutURL unwraps an error that would repeat the whole URL.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
