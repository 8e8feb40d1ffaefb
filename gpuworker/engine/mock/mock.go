// Package mock is an inference engine without a model: it answers with a prefix
// and the prompt. Equal requests get equal answers in any process.
//
// It serves to try rollout without a server, to test, and to measure what the rest
// of the system costs. It never looks at the model's name, never cuts an answer to
// max_tokens and never opens a connection.
package mock

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
)

// Prefix starts every answer.
const Prefix = "MOCK:"

// Config sets up an Engine. The zero value answers at once.
type Config struct {
	// Model is the name that Ready and every answer return; "mock" if empty.
	Model string
	// Delay is how long every answer takes.
	Delay time.Duration
	// Fault, if set, is called first. Its error, which must be a *fault.Error,
	// ends the request. It is called from many goroutines at once.
	Fault func(engine.Request) error
}

// Engine answers with Prefix and the prompt. It is safe for concurrent use.
type Engine struct {
	cfg     Config
	scratch sync.Pool // *scratch
	closed  atomic.Bool
	done    chan struct{}
}

// New returns an Engine.
func New(cfg Config) *Engine {
	if cfg.Model == "" {
		cfg.Model = "mock"
	}
	return &Engine{cfg: cfg, scratch: sync.Pool{New: newScratch}, done: make(chan struct{})}
}

// Answer returns Prefix and the completion's prompt, or the content of the chat's
// last user message with its text parts joined. A prompt that is not a string is
// answered with its JSON.
//
// A request with a seed and a temperature above 0 gets a suffix, " #" and 8 hex
// digits of the body's BLAKE3 hash: like a sampling model, other seeds get other
// answers. Token counts are words. The finish reason is always "stop".
func (e *Engine) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	if err := e.ended(ctx); err != nil {
		return engine.Answer{}, err
	}
	if e.cfg.Fault != nil {
		if err := e.cfg.Fault(r); err != nil {
			return engine.Answer{}, err
		}
	}
	q, err := read(r)
	if err != nil {
		return engine.Answer{}, refused(err)
	}
	progress()
	if err := e.wait(ctx); err != nil {
		return engine.Answer{}, err
	}
	text, err := e.text(q, r.Body)
	if err != nil {
		return engine.Answer{}, refused(err)
	}
	words := int64(strings.Count(text, " ")) + 1
	return engine.Answer{
		Text: text, FinishReason: "stop", Model: e.cfg.Model,
		Usage: engine.Usage{PromptTokens: words, CompletionTokens: words},
	}, nil
}

func refused(err error) error {
	return &fault.Error{Kind: fault.Invalid, Class: fault.Refused, Op: "mock engine", Err: err}
}

// text renders the answer to a question from the given body.
func (e *Engine) text(q question, body []byte) (string, error) {
	s := e.scratch.Get().(*scratch)
	defer e.scratch.Put(s)
	out, err := appendText(append(s.text[:0], Prefix...), q.prompt)
	if q.sampled() {
		out = appendFingerprint(append(out, " #"...), body)
	}
	if cap(out) <= maxKept {
		s.text = out
	}
	return string(out), err
}

// wait waits for the configured delay, or until ctx or the engine ends.
func (e *Engine) wait(ctx context.Context) error {
	if e.cfg.Delay <= 0 {
		return nil
	}
	t := time.NewTimer(e.cfg.Delay)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
	case <-e.done:
	}
	return e.ended(ctx)
}

// ended returns an error if ctx has ended or the engine is closed.
func (e *Engine) ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return fault.WithKind(fault.Canceled, context.Cause(ctx), "mock engine")
	}
	if e.closed.Load() {
		return fault.WithKind(fault.Unavailable, errors.New("the engine is closed"), "mock engine")
	}
	return nil
}

// Ready returns the configured model's name.
func (e *Engine) Ready(ctx context.Context) (string, error) {
	if err := e.ended(ctx); err != nil {
		return "", err
	}
	return e.cfg.Model, nil
}

// Close makes answers in flight and later ones fail with Unavailable. Further calls
// are allowed.
func (e *Engine) Close() error {
	if e.closed.CompareAndSwap(false, true) {
		close(e.done)
	}
	return nil
}

// maxKept bounds the bytes of the buffer that a scratch keeps.
const maxKept = 64 << 10

// scratch is the reusable memory of one answer.
type scratch struct{ text []byte }

func newScratch() any { return new(scratch) }

// appendFingerprint appends 8 hex digits of the body's BLAKE3 hash.
func appendFingerprint(dst, body []byte) []byte {
	id := identity.Content(body)
	return hex.AppendEncode(dst, id[:4])
}
