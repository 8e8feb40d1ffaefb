// Package tiny is an engine that runs a small model of the Llama architecture
// inside this process, in pure Go. Load starts one from a weights file; New from
// any scheduler.Model.
//
// Requests have the format of vLLM's OpenAI-compatible API (see package
// openaireq). Many requests run at once, with continuous batching. A request gets
// the same tokens on any machine, with any number of threads, and whatever other
// requests run. The engine lowers a max_tokens that does not fit into the context,
// and reports the new value in the answer.
//
// Package tinylm describes the library below. The engine never opens a
// connection, a file or a device.
package tiny

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"lukechampine.com/blake3"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/tiny/openaireq"
	"rollout/gpuworker/tinylm/scheduler"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/shared/fault"
)

// Config is an Engine's configuration.
type Config struct {
	Name     string          // name of the served model. Example: "rollout/tiny"
	Revision string          // revision of its weights; "" if unknown
	Model    scheduler.Model // nil with Remote
	// Remote generates the answers elsewhere, in place of Model.
	Remote    Remote
	Tokenizer *tokenizer.Tokenizer
	// ChatTurns says that the model was trained on chats that
	// Tokenizer.AppendTurn encodes. Without it, see Engine.ChatTokens.
	ChatTurns bool
	Batch     scheduler.Config
	// CompletionTokens is the max_tokens of completions that set none; default:
	// 16, as in OpenAI's API and vLLM. For chats, the default is the rest of the
	// context.
	CompletionTokens int
}

// Remote generates answers outside the engine. Its methods are safe for concurrent use.
type Remote interface {
	Vocab() int
	Context() int
	Slots() int
	// Generate returns the whole answer to a request that fits into the context. Faults
	// are those of engine.Engine.
	Generate(ctx context.Context, q GenerationRequest) (GenerationResult, error)
}

// Vocabulary is what generating needs to know of the tokens of a model. It does not change.
type Vocabulary struct {
	tokenizer *tokenizer.Tokenizer
	size      int     // of the model's vocabulary
	ends      []int32 // tokens that end an answer: all special tokens and the unused ones
	unused    []int32 // ids of the model that the tokenizer does not have
}

// NewVocabulary returns the vocabulary of a model that has size tokens. A tokenizer with more
// is an Invalid fault.
func NewVocabulary(t *tokenizer.Tokenizer, size int) (*Vocabulary, error) {
	if t.Vocab() > size {
		return nil, &fault.Error{Kind: fault.Invalid, Remedy: "use the tokenizer that the model was trained with",
			Err: fmt.Errorf("the model has %d tokens, its tokenizer %d", size, t.Vocab())}
	}
	v := &Vocabulary{tokenizer: t, size: size}
	for id := range int32(t.Vocab()) {
		if t.SpecialName(id) != "" {
			v.ends = append(v.ends, id)
		}
	}
	for id := t.Vocab(); id < size; id++ {
		v.unused = append(v.unused, int32(id))
	}
	v.ends = append(v.ends, v.unused...)
	return v, nil
}

// Engine implements engine.Engine. It is safe for concurrent use.
type Engine struct {
	*Vocabulary
	name             string
	revision         string
	model            interface{ Context() int } // the Model or the Remote
	remote           Remote                     // nil without one
	chatTurns        bool
	defaultMaxTokens int64                // of a completion
	sched            *scheduler.Scheduler // nil with a remote
	closed           atomic.Bool
	longestToken     int // maximum length of a token in bytes
}

// New starts an engine that serves the model. The caller must not use the model
// until Close has returned. A tokenizer with more tokens than the model is an
// Invalid fault.
func New(cfg Config) (*Engine, error) {
	t := cfg.Tokenizer
	e := &Engine{
		name: cfg.Name, revision: cfg.Revision, remote: cfg.Remote, chatTurns: cfg.ChatTurns,
		defaultMaxTokens: int64(cmp.Or(cfg.CompletionTokens, 16)),
	}
	var size int
	if cfg.Remote != nil {
		e.model, size = cfg.Remote, cfg.Remote.Vocab()
	} else {
		e.model, size = cfg.Model, cfg.Model.Vocab()
	}
	var err error
	if e.Vocabulary, err = NewVocabulary(t, size); err != nil {
		return nil, fault.Wrap(err, "the model %s", cfg.Name)
	}
	for id := range int32(t.Vocab()) {
		e.longestToken = max(e.longestToken, len(t.Piece(id)))
	}
	if cfg.Remote == nil {
		e.sched = scheduler.New(cfg.Model, cfg.Batch)
	}
	return e, nil
}

// Name returns the name of the served model.
func (e *Engine) Name() string { return e.name }

// Revision returns the revision of the weights, or "" if it is unknown.
func (e *Engine) Revision() string { return e.revision }

// Vocab returns the size of the model's vocabulary.
func (e *Engine) Vocab() int { return e.size }

// Context returns the maximum number of tokens of prompt and answer together.
func (e *Engine) Context() int { return e.model.Context() }

// Slots returns the maximum number of requests that run at once.
func (e *Engine) Slots() int {
	if e.remote != nil {
		return e.remote.Slots()
	}
	return e.sched.Slots()
}

// Stats returns the scheduler's statistics; zero with a Remote.
func (e *Engine) Stats() scheduler.Stats {
	if e.remote != nil {
		return scheduler.Stats{}
	}
	return e.sched.Stats()
}

// ChatTurns reports whether chats are encoded as turns; see ChatTokens.
func (e *Engine) ChatTurns() bool { return e.chatTurns }

// Answer answers a request. If the request has no seed, Answer derives one from
// its body, so that equal requests get equal answers.
func (e *Engine) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	if err := e.alive(ctx); err != nil {
		return engine.Answer{}, err
	}
	q, clamped, err := e.parseRequest(r)
	if err != nil {
		return engine.Answer{}, fault.Wrap(err, "%s", e.name)
	}
	reporter := &progressReporter{progress: progress}
	defer reporter.stop()
	q.OnDelta = func(Delta) { reporter.report() }
	out, err := e.Generate(ctx, q)
	if err != nil {
		return engine.Answer{}, err
	}
	a := engine.Answer{
		Text: out.Text, FinishReason: out.Finish, Model: e.name, Usage: out.Usage, MaxTokens: clamped,
	}
	if q.Logprobs >= 0 {
		a.Logprobs = openaireq.AppendLogprobs(nil, r.Endpoint == engine.Chat, out.Tokens)
	}
	return a, nil
}

// parseRequest parses a request for one answer. clamped is the value that its
// max_tokens was lowered to, or 0.
func (e *Engine) parseRequest(r engine.Request) (q GenerationRequest, clamped int64, err error) {
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
		err = errors.New("a request must ask for one answer: send one prompt with n 1")
	}
	if err == nil && req.Echo {
		err = errors.New("echo is not supported: the result already contains the prompt")
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
	most := e.MaxTokens(req, tokens[0])
	if room := int64(e.Context() - len(tokens[0])); most > room {
		most = room
		if req.Max > 0 { // report it only if the request set max_tokens
			clamped = room
		}
	}
	req.Max = most
	if req.Max == 0 {
		err := errors.New("max_tokens must be at least 1")
		return GenerationRequest{}, 0, &fault.Error{Kind: fault.Invalid, Class: fault.Refused, Err: err}
	}
	if !req.HasSeed {
		sum := blake3.Sum256(r.Body)
		req.Seed = binary.LittleEndian.Uint64(sum[:])
	}
	return e.NewGenerationRequest(req, tokens[0]), clamped, nil
}

// MaxTokens returns the maximum number of tokens of the answer to a prompt: the
// request's max_tokens, or the default. A max_tokens of the request may exceed the
// context.
func (e *Engine) MaxTokens(req openaireq.Request, prompt []int32) int64 {
	switch {
	case req.Max >= 0:
		return req.Max
	case req.Chat:
		return int64(e.Context() - len(prompt))
	}
	return min(e.defaultMaxTokens, int64(e.Context()-len(prompt)))
}

// NewGenerationRequest returns the GenerationRequest for one prompt of a request.
// tokens are the prompt's tokens; req.Max must fit into the rest of the context.
func (e *Engine) NewGenerationRequest(req openaireq.Request, tokens []int32) GenerationRequest {
	return GenerationRequest{
		Prompt: tokens, Max: int(req.Max), Min: int(min(req.Min, req.Max)), Sampling: req.Sampling, Seed: req.Seed,
		Stop: req.Stop, StopIDs: req.StopIDs, KeepStop: req.KeepStop, IgnoreEOS: req.IgnoreEOS,
		Logprobs: req.Logprobs, PromptLogprobs: req.Echo && req.Logprobs >= 0,
	}
}

// alive returns a fault if ctx is canceled or the engine is closed.
func (e *Engine) alive(ctx context.Context) error {
	if ctx.Err() != nil {
		return fault.WithKind(fault.Canceled, context.Cause(ctx), "%s", e.name)
	}
	if e.closed.Load() {
		return fault.WithKind(fault.Unavailable, errors.New("the engine is closed"), "%s", e.name)
	}
	return nil
}

// Ready returns the model's name. A new engine is ready immediately.
func (e *Engine) Ready(ctx context.Context) (string, error) {
	if err := e.alive(ctx); err != nil {
		return "", err
	}
	return e.name, nil
}

// Close stops the engine. Requests in progress and later ones return an
// Unavailable fault. Further calls do nothing.
func (e *Engine) Close() error {
	e.closed.Store(true)
	if e.sched != nil {
		e.sched.Close()
	}
	return nil
}

// progressReporter calls progress until it is stopped. The scheduler may still
// call OnDelta after Answer has returned, when progress must not be called.
type progressReporter struct {
	mu       sync.Mutex
	progress func()
}

func (p *progressReporter) report() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.progress != nil {
		p.progress()
	}
}

func (p *progressReporter) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.progress = nil
}
