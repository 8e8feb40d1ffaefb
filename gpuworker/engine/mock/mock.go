// Package mock is an inference engine without a model: its answer is the
// prompt with a prefix, the same for the same request in any process.
//
// It is for laptops without a server, for tests and for measuring what the
// rest of the system costs. It never looks at a model's name, never truncates
// an answer to max_tokens and never opens a connection.
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

// Config sets an Engine up. The zero value answers at once.
type Config struct {
	// Model is the name that Ready and every answer give; "mock" if empty.
	Model string
	// Delay is how long every answer takes.
	Delay time.Duration
	// Fault, if set, is asked first; its error is the request's answer. It
	// is called from many goroutines at once and must return *fault.Error.
	Fault func(engine.Request) error
}

// Engine answers with Prefix and the prompt. It holds nothing but scratch
// memory; any number of goroutines may use it.
type Engine struct {
	cfg     Config
	scratch sync.Pool // *scratch
	closed  atomic.Bool
	done    chan struct{}
}

// New returns an Engine. It cannot fail.
func New(cfg Config) *Engine {
	if cfg.Model == "" {
		cfg.Model = "mock"
	}
	return &Engine{cfg: cfg, scratch: sync.Pool{New: newScratch}, done: make(chan struct{})}
}

// Answer returns Prefix and the completion's prompt, or the content of the
// chat's last user message (its text parts joined). A prompt that is no string
// is answered with its JSON.
//
// A request with a seed and a temperature above 0 gets a suffix, " #" and 8
// hex digits of the body's blake3: other seeds, other answers, as a sampling
// model has it. Tokens are counted as spaces. Finish is always "stop".
func (e *Engine) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	if err := e.alive(ctx); err != nil {
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

// text renders the answer to a question whose request had the body.
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

// wait sleeps for the configured delay, unless ctx or the engine ends first.
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
	return e.alive(ctx)
}

// alive says why the engine can't answer this caller, or nil.
func (e *Engine) alive(ctx context.Context) error {
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
	if err := e.alive(ctx); err != nil {
		return "", err
	}
	return e.cfg.Model, nil
}

// Close makes answers in flight and later ones fail with Unavailable. It may
// be called again.
func (e *Engine) Close() error {
	if e.closed.CompareAndSwap(false, true) {
		close(e.done)
	}
	return nil
}

// maxKept bounds the text buffer that one scratch keeps.
const maxKept = 64 << 10

// scratch is the reusable memory of one answer.
type scratch struct{ text []byte }

func newScratch() any { return new(scratch) }

// appendFingerprint appends 8 hex digits of the body's blake3.
func appendFingerprint(dst, body []byte) []byte {
	id := identity.Content(body)
	return hex.AppendEncode(dst, id[:4])
}
