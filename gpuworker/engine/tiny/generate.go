package tiny

import (
	"context"
	"slices"
	"sync/atomic"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/tiny/openaireq"
	"rollout/gpuworker/tinylm/sampling"
	"rollout/gpuworker/tinylm/scheduler"
	"rollout/shared/fault"
)

// GenerationRequest is a request for one answer to one prompt.
type GenerationRequest struct {
	Prompt         []int32 // at least one token
	Max            int     // maximum number of tokens of the answer, may be 0; must fit into the context
	Min            int     // number of tokens during which the end of text and stops are ignored
	Sampling       sampling.Params
	Seed           uint64
	Stop           []string // stop strings
	StopIDs        []int32  // stop tokens
	KeepStop       bool     // the text includes the stop string
	IgnoreEOS      bool     // the end of text is never drawn
	Logprobs       int      // number of alternatives to each token; -1: no log probabilities
	PromptLogprobs bool     // return log probabilities of the prompt's tokens
	// OnDelta is optional. It is called for each new part of the answer. All
	// sequences wait meanwhile, so it must not block.
	OnDelta func(Delta)
}

// Delta is a new part of an answer. Text may be empty, while it may be an
// incomplete character or the start of a stop string.
type Delta struct {
	Text   string
	Tokens []openaireq.Token // the new tokens, if the request asks for log probabilities
	Prompt []openaireq.Token // the prompt's tokens, in the first delta, if requested
	Finish string            // "stop" or "length" in the last delta
}

// GenerationResult is a complete answer.
type GenerationResult struct {
	Text   string
	Finish string            // "stop" or "length"
	Prompt []openaireq.Token // the prompt's tokens, if requested
	Tokens []openaireq.Token // the answer's tokens, if requested
	Usage  engine.Usage
	Times  scheduler.Times
}

// Generate generates an answer. Faults are those of engine.Engine. If tokens were
// generated before the fault, its chain has an engine.PartialUsage.
func (e *Engine) Generate(ctx context.Context, q GenerationRequest) (GenerationResult, error) {
	if q.Max < 0 || len(q.Prompt) == 0 || len(q.Prompt)+q.Max > e.Context() {
		return GenerationResult{}, e.tooLong(int64(len(q.Prompt)), int64(q.Max), false)
	}
	if e.remote != nil {
		out, err := e.remote.Generate(ctx, q)
		return out, fault.Wrap(err, "%s", e.name)
	}
	g := e.Begin(q)
	job := &scheduler.Job{Prompt: q.Prompt, NextToken: g.Next}
	if q.PromptLogprobs {
		job.OnPromptLogits = g.promptLogits
	}
	times, err := e.sched.Run(ctx, job)
	if err != nil {
		return GenerationResult{}, e.withUsage(err, g)
	}
	out := g.Result()
	out.Times = times
	return out, nil
}

// withUsage wraps an error with the model's name and the usage so far.
func (e *Engine) withUsage(err error, g *Generation) error {
	if fault.Is(err, fault.Corrupt) && fault.ClassOf(err) == "" {
		err = &fault.Error{Kind: fault.Corrupt, Class: fault.Engine, Err: err}
	}
	err = fault.Wrap(err, "%s", e.name)
	if generated := g.generated.Load(); generated > 0 {
		usage := engine.Usage{PromptTokens: int64(len(g.q.Prompt)), CompletionTokens: generated}
		return &fault.Error{Kind: fault.KindOf(err), Class: fault.ClassOf(err), RetryAfter: fault.RetryAfter(err),
			Err: &engine.PartialUsage{Usage: usage, Err: err}}
	}
	return err
}

// Generation is the state of an answer. One goroutine at a time may use it.
type Generation struct {
	v         *Vocabulary
	q         GenerationRequest
	sampler   *sampling.Sampler
	text      detokenizer
	prompt    detokenizer       // counts the characters of an echoed prompt
	generated atomic.Int64      // number of tokens of the answer
	tokens    []openaireq.Token // not emitted yet
	begun     bool              // a delta was emitted
	offset    int               // of the answer in the text: the number of characters of an echoed prompt
	out       GenerationResult
}

// Begin returns the state of a new answer. Max and Prompt must fit into the context.
func (v *Vocabulary) Begin(q GenerationRequest) *Generation {
	return &Generation{
		v: v, q: q, text: detokenizer{stops: q.Stop, keep: q.KeepStop},
		sampler: sampling.New(q.Sampling, q.Seed, v.size, q.Prompt),
	}
}

// Next draws the next token and emits its text. It implements scheduler.Job.NextToken.
func (g *Generation) Next(logits []float32) (id int32, more bool, err error) {
	if g.q.Max == 0 {
		g.finish("length", "", false)
		return scheduler.NoToken, false, nil
	}
	excluded := g.v.unused
	if g.q.IgnoreEOS || g.ignoresStops() {
		excluded = g.v.ends
	}
	id, err = g.sampler.Next(logits, excluded)
	if err != nil {
		return scheduler.NoToken, false, err
	}
	return id, g.add(id, logits), nil
}

// ignoresStops reports whether the next token is one of the first Min.
func (g *Generation) ignoresStops() bool { return int(g.generated.Load()) < g.q.Min }

// add adds a token that was drawn from the logits to the answer, and emits its text. It
// reports whether the answer goes on. Without log probabilities the logits may be nil.
func (g *Generation) add(id int32, logits []float32) (more bool) {
	ignoreStops := g.ignoresStops()
	generated := int(g.generated.Add(1))
	if g.q.Logprobs >= 0 {
		g.tokens = append(g.tokens, g.v.token(id, logits, g.q.Logprobs, g.offset+g.text.runes))
	}
	if !ignoreStops && g.isEnd(id) {
		text, _ := g.text.end(false)
		g.finish("stop", text, true)
		return false
	}
	text, stopped := g.text.add(g.v.tokenizer.Piece(id), ignoreStops)
	if stopped {
		g.finish("stop", text, false)
		return false
	}
	if generated == g.q.Max {
		rest, stopped := g.text.end(ignoreStops)
		finish := "length"
		if stopped {
			finish = "stop"
		}
		g.finish(finish, text+rest, false)
		return false
	}
	g.emit(text, "")
	return true
}

// Result returns the answer, once it is complete.
func (g *Generation) Result() GenerationResult {
	out := g.out
	out.Usage = engine.Usage{PromptTokens: int64(len(g.q.Prompt)), CompletionTokens: g.generated.Load()}
	return out
}

// Replay returns the answer whose tokens were drawn elsewhere for the same request. It is
// Corrupt if the tokens are not those of a complete answer, and Invalid if the request asks
// for log probabilities, which tokens do not tell.
func (v *Vocabulary) Replay(q GenerationRequest, tokens []int32) (GenerationResult, error) {
	if q.Logprobs >= 0 {
		return GenerationResult{}, fault.New(fault.Invalid, "log probabilities of tokens that were drawn elsewhere")
	}
	g := v.Begin(q)
	more := q.Max > 0
	if !more {
		g.finish("length", "", false)
	}
	for i, id := range tokens {
		if !more || id < 0 || int(id) >= v.size {
			return GenerationResult{}, fault.New(fault.Corrupt, "token %d of %d is %d: the answer ended before it, or the "+
				"vocabulary lacks it", i, len(tokens), id)
		}
		more = g.add(id, nil)
	}
	if more {
		return GenerationResult{}, fault.New(fault.Corrupt, "%d tokens are not a complete answer", len(tokens))
	}
	return g.Result(), nil
}

// isEnd reports whether the token ends the answer: a special token or a stop
// token. The answer's text does not include it.
func (g *Generation) isEnd(id int32) bool {
	return g.v.tokenizer.SpecialName(id) != "" || slices.Contains(g.q.StopIDs, id)
}

// emit adds text and the pending tokens to the result, and passes them to
// OnDelta.
func (g *Generation) emit(text, finish string) {
	g.out.Text += text
	g.out.Tokens = append(g.out.Tokens, g.tokens...)
	g.out.Finish = finish
	if g.q.OnDelta != nil {
		d := Delta{Text: text, Tokens: g.tokens, Finish: finish}
		if !g.begun {
			d.Prompt = g.out.Prompt
		}
		g.q.OnDelta(d)
	}
	g.begun = true
	g.tokens = nil
}

// finish emits the last delta. ended says that a token ended the answer; a special
// token has no bytes, and its log probability is omitted.
func (g *Generation) finish(reason, text string, ended bool) {
	if ended && len(g.tokens) > 0 && len(g.tokens[len(g.tokens)-1].Bytes) == 0 {
		g.tokens = g.tokens[:len(g.tokens)-1]
	}
	g.emit(text, reason)
}

// promptLogits records the log probability of the prompt's token at+1. It
// implements scheduler.Job.OnPromptLogits.
func (g *Generation) promptLogits(at int, logits []float32) error {
	if err := sampling.CheckFinite(logits); err != nil {
		return err
	}
	if at == 0 {
		piece := g.v.tokenizer.Piece(g.q.Prompt[0])
		g.out.Prompt = append(g.out.Prompt, openaireq.Token{Bytes: piece, First: true})
		g.prompt.add(piece, true)
	}
	if at+1 == len(g.q.Prompt) {
		g.prompt.end(true)
		g.offset = g.prompt.runes
		return nil
	}
	id := g.q.Prompt[at+1]
	g.out.Prompt = append(g.out.Prompt, g.v.token(id, logits, g.q.Logprobs, g.prompt.runes))
	g.prompt.add(g.v.tokenizer.Piece(id), true)
	return nil
}

// token returns a token with its log probability and its alternatives.
func (v *Vocabulary) token(id int32, logits []float32, top, offset int) openaireq.Token {
	logprob, best := sampling.Logprobs(logits, id, top)
	t := openaireq.Token{Bytes: v.tokenizer.Piece(id), Logprob: logprob, Offset: offset}
	for _, b := range best {
		t.Top = append(t.Top, openaireq.Alternative{Bytes: v.tokenizer.Piece(b.ID), Logprob: b.Logprob})
	}
	return t
}
