// Package tiny is an engine with a model of its own: a small decoder of the
// Llama architecture that runs in this process, with nothing but Go.
//
// Many requests share the model (continuous batching), and none notices: the
// same request, alone or among others, gets the same tokens, on any machine and
// with any number of threads. Requests are those that vLLM takes; see package
// wire. A max_tokens that does not fit the context is lowered, and the answer
// says so.
//
// The engine lives and dies with its process. It never opens a connection, a
// file or a device.
package tiny

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"lukechampine.com/blake3"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/tiny/openaireq"
	"rollout/gpuworker/tinylm/scheduler"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/shared/fault"
)

// Config sets an Engine up.
type Config struct {
	Name      string // of the served model, such as "rollout/tiny"
	Revision  string // of its weights; "" if unknown
	Model     scheduler.Model
	Tokenizer *tokenizer.Tokenizer
	ChatTurns bool // chats are made of the tokenizer's turns, as the model was trained on; else see Engine.ChatTokens
	Batch     scheduler.Config
	// CompletionTokens is max_tokens of a completion that does not say; 16 if
	// 0, as in OpenAI's API and vLLM. A chat's is what the context has room
	// for.
	CompletionTokens int
}

// Engine is an engine.Engine. Any number of goroutines may use it.
type Engine struct {
	name      string
	revision  string
	model     scheduler.Model
	tokenizer *tokenizer.Tokenizer
	chatTurns bool
	usual     int64 // max_tokens of a completion
	sched     *scheduler.Scheduler
	longest   int     // bytes of a token, at most
	ends      []int32 // tokens that end an answer: all special ones, and those that no text has
	unused    []int32 // tokens that the tokenizer does not have
}

// New starts an engine over the model, which nobody else may use from now on.
func New(cfg Config) (*Engine, error) {
	t := cfg.Tokenizer
	if t.Vocab() > cfg.Model.Vocab() {
		return nil, &fault.Error{Kind: fault.Invalid, Op: "the model " + cfg.Name, Remedy: "use the tokenizer that the model was trained with",
			Err: fmt.Errorf("it has %d tokens, its tokenizer %d", cfg.Model.Vocab(), t.Vocab())}
	}
	e := &Engine{name: cfg.Name, revision: cfg.Revision, model: cfg.Model, tokenizer: t, chatTurns: cfg.ChatTurns, usual: int64(cmp.Or(cfg.CompletionTokens, 16))}
	for id := range int32(t.Vocab()) {
		e.longest = max(e.longest, len(t.Piece(id)))
		if t.SpecialName(id) != "" {
			e.ends = append(e.ends, id)
		}
	}
	for id := t.Vocab(); id < cfg.Model.Vocab(); id++ {
		e.unused = append(e.unused, int32(id))
	}
	e.ends = append(e.ends, e.unused...)
	e.sched = scheduler.New(cfg.Model, cfg.Batch)
	return e, nil
}

// Name is the served model's.
func (e *Engine) Name() string { return e.name }

// Revision names its weights; "" if unknown.
func (e *Engine) Revision() string { return e.revision }

// Vocab is the number of tokens, Context that of prompt and answer together at
// most.
func (e *Engine) Vocab() int { return e.model.Vocab() }

// Context is described at Vocab.
func (e *Engine) Context() int { return e.model.Context() }

// Slots is how many requests run at once; more wait.
func (e *Engine) Slots() int { return e.sched.Slots() }

// Stats tells what the engine does.
func (e *Engine) Stats() scheduler.Stats { return e.sched.Stats() }

func (e *Engine) isEnd(id int32) bool { return e.tokenizer.SpecialName(id) != "" }

// ChatTurns reports whether chats are made of turns; see ChatTokens.
func (e *Engine) ChatTurns() bool { return e.chatTurns }

// Answer answers a request. A seed that it does not have is derived from its
// body, so that equal requests get equal answers.
func (e *Engine) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	if err := e.alive(ctx); err != nil {
		return engine.Answer{}, err
	}
	q, clamped, err := e.question(r)
	if err != nil {
		return engine.Answer{}, fault.Wrap(err, "%s", e.name)
	}
	sign := &signs{progress: progress}
	defer sign.stop()
	q.OnDelta = func(Delta) { sign.give() }
	out, err := e.Generate(ctx, q)
	if err != nil {
		return engine.Answer{}, err
	}
	a := engine.Answer{Text: out.Text, FinishReason: out.Finish, Model: e.name, Usage: out.Usage, MaxTokens: clamped}
	if q.Logprobs >= 0 {
		a.Logprobs = openaireq.AppendLogprobs(nil, r.Endpoint == engine.Chat, out.Tokens)
	}
	return a, nil
}

// question reads a request for one answer; clamped is what its max_tokens was
// lowered to, 0 if it was not.
func (e *Engine) question(r engine.Request) (q GenerationRequest, clamped int64, err error) {
	var req openaireq.Request
	switch r.Endpoint {
	case engine.Chat:
		req, err = openaireq.ParseChat(r.Body, e.Vocab())
	case engine.Completion:
		req, err = openaireq.ParseCompletion(r.Body, e.Vocab())
	default:
		err = fmt.Errorf("endpoint %q is neither chat nor completion", r.Endpoint)
	}
	if err == nil && (len(req.Prompts) > 1 || req.N > 1) {
		err = errors.New("a request is for one answer")
	}
	if err == nil && req.Echo {
		err = errors.New("echo is not supported here: the prompt stands beside the answer")
	}
	if fault.Is(err, fault.Internal) {
		err = &fault.Error{Kind: fault.Invalid, Class: fault.Refused, Err: err}
	}
	if err != nil {
		return GenerationRequest{}, 0, err
	}
	tokens, err := e.PromptTokens(req)
	if err != nil {
		return GenerationRequest{}, 0, err
	}
	asked := e.MaxTokens(req, tokens[0])
	if room := int64(e.Context() - len(tokens[0])); asked > room {
		asked = room
		if req.Max > 0 { // it was asked for, and is told
			clamped = room
		}
	}
	req.Max = asked
	if req.Max == 0 {
		return GenerationRequest{}, 0, &fault.Error{Kind: fault.Invalid, Class: fault.Refused, Err: errors.New("max_tokens must be at least 1")}
	}
	if !req.HasSeed {
		sum := blake3.Sum256(r.Body)
		req.Seed = binary.LittleEndian.Uint64(sum[:])
	}
	return e.NewGenerationRequest(req, tokens[0]), clamped, nil
}

// MaxTokens is how many tokens a request wants of the answer to a prompt: what it
// says, else the default. It may be more than there is room for.
func (e *Engine) MaxTokens(req openaireq.Request, prompt []int32) int64 {
	switch {
	case req.Max >= 0:
		return req.Max
	case req.Chat:
		return int64(e.Context() - len(prompt))
	}
	return min(e.usual, int64(e.Context()-len(prompt)))
}

// NewGenerationRequest is the question that a request puts to the tokens of one prompt.
// req.Max must fit.
func (e *Engine) NewGenerationRequest(req openaireq.Request, tokens []int32) GenerationRequest {
	return GenerationRequest{Prompt: tokens, Max: int(req.Max), Min: int(min(req.Min, req.Max)), Sampling: req.Sampling, Seed: req.Seed, Stop: req.Stop,
		StopIDs: req.StopIDs, KeepStop: req.KeepStop, IgnoreEOS: req.IgnoreEOS, Logprobs: req.Logprobs, PromptLogprobs: req.Echo && req.Logprobs >= 0}
}

// alive says why the engine can't answer this caller, or nil.
func (e *Engine) alive(ctx context.Context) error {
	if ctx.Err() != nil {
		return fault.WithKind(fault.Canceled, context.Cause(ctx), "%s", e.name)
	}
	if e.sched.Closed() {
		return fault.WithKind(fault.Unavailable, errors.New("the engine is closed"), "%s", e.name)
	}
	return nil
}

// Ready returns the model's name: an engine is ready at once.
func (e *Engine) Ready(ctx context.Context) (string, error) {
	if err := e.alive(ctx); err != nil {
		return "", err
	}
	return e.name, nil
}

// Close makes answers in flight and later ones fail with Unavailable. It may
// be called again.
func (e *Engine) Close() error {
	e.sched.Close()
	return nil
}

// signs passes signs of work on, until its request is answered.
type signs struct {
	mu       sync.Mutex
	progress func()
}

func (s *signs) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.progress != nil {
		s.progress()
	}
}

func (s *signs) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = nil
}
