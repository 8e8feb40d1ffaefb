package tiny

import (
	"context"
	"sync/atomic"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/tiny/openaireq"
	"rollout/gpuworker/tinylm/sampling"
	"rollout/gpuworker/tinylm/scheduler"
	"rollout/shared/fault"
)

// GenerationRequest asks for one answer to one prompt.
type GenerationRequest struct {
	Prompt         []int32 // at least one token
	Max            int     // tokens of the answer, 0 for none; prompt and answer must fit the context
	Min            int     // tokens before an end of text or a stop counts
	Sampling       sampling.Params
	Seed           uint64
	Stop           []string
	StopIDs        []int32
	KeepStop       bool
	IgnoreEOS      bool
	Logprobs       int  // alternatives to each token; -1: no log probabilities
	PromptLogprobs bool // log probabilities of the prompt's tokens, too
	// OnDelta, if set, is called as the answer grows. It runs while the whole
	// batch waits: it must not block.
	OnDelta func(Delta)
}

// Delta is what an answer grew by. Text may be empty: it is held back while it
// may be a part of a character or of a stop.
type Delta struct {
	Text   string
	Tokens []openaireq.Token // if the question asks for log probabilities
	Prompt []openaireq.Token // with the first piece: the prompt's, if asked for
	Finish string            // with the last piece: "stop" or "length"
}

// GenerationResult is a whole answer.
type GenerationResult struct {
	Text   string
	Finish string            // "stop" or "length"
	Prompt []openaireq.Token // the prompt's, if asked for
	Tokens []openaireq.Token // the answer's, if asked for
	Usage  engine.Usage
	Times  scheduler.Times
}

// Generate answers a question. Faults are those of engine.Engine; engine.PartialUsage
// in the chain of Canceled says what it cost.
func (e *Engine) Generate(ctx context.Context, q GenerationRequest) (GenerationResult, error) {
	if q.Max < 0 || len(q.Prompt) == 0 || len(q.Prompt)+q.Max > e.Context() {
		return GenerationResult{}, e.tooLong(int64(len(q.Prompt)), int64(q.Max), false)
	}
	g := &generation{e: e, q: q, writer: detokenizer{stops: q.Stop, keep: q.KeepStop},
		sampler: sampling.New(q.Sampling, q.Seed, e.Vocab(), q.Prompt)}
	job := &scheduler.Job{Prompt: q.Prompt, NextToken: g.take}
	if q.PromptLogprobs {
		job.OnPromptLogits = g.read
	}
	times, err := e.sched.Run(ctx, job)
	if err != nil {
		return GenerationResult{}, e.charge(err, g)
	}
	g.out.Times = times
	g.out.Usage = engine.Usage{PromptTokens: int64(len(q.Prompt)), CompletionTokens: g.made.Load()}
	return g.out, nil
}

// charge says in the error what its request cost.
func (e *Engine) charge(err error, g *generation) error {
	if fault.Is(err, fault.Corrupt) && fault.ClassOf(err) == "" {
		err = &fault.Error{Kind: fault.Corrupt, Class: fault.Engine, Err: err}
	}
	err = fault.Wrap(err, "%s", e.name)
	if made := g.made.Load(); made > 0 {
		return &fault.Error{Kind: fault.KindOf(err), Class: fault.ClassOf(err), RetryAfter: fault.RetryAfter(err),
			Err: &engine.PartialUsage{Usage: engine.Usage{PromptTokens: int64(len(g.q.Prompt)), CompletionTokens: made}, Err: err}}
	}
	return err
}

// generation is an answer in the making. All but made belongs to the
// scheduler's goroutine until the job ends.
type generation struct {
	e       *Engine
	q       GenerationRequest
	sampler *sampling.Sampler
	writer  detokenizer
	prompt  detokenizer       // counts the characters of a prompt that is echoed
	made    atomic.Int64      // tokens
	tokens  []openaireq.Token // not emitted yet
	begun   bool              // a piece was emitted
	offset  int               // of the answer in the text, in characters: the length of an echoed prompt
	out     GenerationResult
}

// take draws the next token and writes it.
func (g *generation) take(logits []float32) (int32, bool, error) {
	if g.q.Max == 0 {
		g.finish("length", "", false)
		return scheduler.NoToken, false, nil
	}
	made := int(g.made.Load()) + 1
	calm := made <= g.q.Min
	excluded := g.e.unused
	if g.q.IgnoreEOS || calm {
		excluded = g.e.ends
	}
	id, err := g.sampler.Next(logits, excluded)
	if err != nil {
		return scheduler.NoToken, false, err
	}
	g.made.Store(int64(made))
	if g.q.Logprobs >= 0 {
		g.tokens = append(g.tokens, g.e.token(id, logits, g.q.Logprobs, g.offset+g.writer.runes))
	}
	if !calm && g.isEnd(id) {
		text, _ := g.writer.end(false)
		g.finish("stop", text, true)
		return id, false, nil
	}
	text, stopped := g.writer.add(g.e.tokenizer.Piece(id), calm)
	if stopped {
		g.finish("stop", text, false)
		return id, false, nil
	}
	if made == g.q.Max {
		rest, stopped := g.writer.end(calm)
		finish := "length"
		if stopped {
			finish = "stop"
		}
		g.finish(finish, text+rest, false)
		return id, false, nil
	}
	g.emit(text, "")
	return id, true, nil
}

// isEnd reports whether the token ends an answer. Its text is no part of it.
func (g *generation) isEnd(id int32) bool {
	if g.e.isEnd(id) {
		return true
	}
	for _, stop := range g.q.StopIDs {
		if id == stop {
			return true
		}
	}
	return false
}

func (g *generation) emit(text, finish string) {
	g.out.Text += text
	g.out.Tokens = append(g.out.Tokens, g.tokens...)
	g.out.Finish = finish
	if g.q.OnDelta != nil {
		p := Delta{Text: text, Tokens: g.tokens, Finish: finish}
		if !g.begun {
			p.Prompt = g.out.Prompt
		}
		g.q.OnDelta(p)
	}
	g.begun = true
	g.tokens = nil
}

func (g *generation) finish(reason, text string, ended bool) {
	if ended && len(g.tokens) > 0 && len(g.tokens[len(g.tokens)-1].Bytes) == 0 {
		g.tokens = g.tokens[:len(g.tokens)-1] // an end of text has no text to show a probability of
	}
	g.emit(text, reason)
}

// read notes the log probability of the prompt's token after the place.
func (g *generation) read(at int, logits []float32) error {
	if err := sampling.CheckFinite(logits); err != nil {
		return err
	}
	if at == 0 {
		piece := g.e.tokenizer.Piece(g.q.Prompt[0])
		g.out.Prompt = append(g.out.Prompt, openaireq.Token{Bytes: piece, First: true})
		g.prompt.add(piece, true)
	}
	if at+1 == len(g.q.Prompt) {
		g.prompt.end(true)
		g.offset = g.prompt.runes
		return nil
	}
	id := g.q.Prompt[at+1]
	g.out.Prompt = append(g.out.Prompt, g.e.token(id, logits, g.q.Logprobs, g.prompt.runes))
	g.prompt.add(g.e.tokenizer.Piece(id), true)
	return nil
}

// token describes a token and its alternatives.
func (e *Engine) token(id int32, logits []float32, top, offset int) openaireq.Token {
	logprob, best := sampling.Logprobs(logits, id, top)
	t := openaireq.Token{Bytes: e.tokenizer.Piece(id), Logprob: logprob, Offset: offset}
	for _, b := range best {
		t.Top = append(t.Top, openaireq.Alternative{Bytes: e.tokenizer.Piece(b.ID), Logprob: b.Logprob})
	}
	return t
}
