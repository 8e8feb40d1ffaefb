// Package text is the pipeline of a language model. Stage 0 turns prompts into tokens and
// tokens into answers; the ranks of the mesh generate the tokens, each with a part of the
// model.
//
//	tiny.Engine ─Generate─▶ Stage ─chunk of ≤ 8 prompts─▶ Generator × ranks ─tokens─▶ answers
//
// The answers have the bytes of the ordinary tiny engine: the parts of the model compute the
// same bits, each request brings its own seed, and all ranks draw the same tokens. The
// generator runs once for each token that the longest answer of a chunk may have; a call
// after the last answer's end computes nothing, so that the number of calls is known before.
package text

import (
	"context"
	"encoding/json"
	"sync"

	"rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/pipeline/stage0"
	"rollout/gpuworker/pipeline/wire"
	"rollout/gpuworker/tinylm/sampling"
	"rollout/gpuworker/tinylm/weights"
	"rollout/shared/core/pipeline"
	"rollout/shared/fault"
)

// ChunkPrompts is how many prompts a chunk has at most.
const ChunkPrompts = 8

// request is how the answer to one prompt is drawn, as it is sent to the mesh.
type request struct {
	Max       int             `json:"max"`
	Min       int             `json:"min"`
	Sampling  sampling.Params `json:"sampling"`
	Seed      uint64          `json:"seed"`
	Stop      []string        `json:"stop,omitempty"`
	StopIDs   []int32         `json:"stop_ids,omitempty"`
	KeepStop  bool            `json:"keep_stop,omitempty"`
	IgnoreEOS bool            `json:"ignore_eos,omitempty"`
}

// Stage is stage 0. It implements tiny.Remote and stage0.Source.
type Stage struct {
	vocabulary *tiny.Vocabulary
	size, room int // of the vocabulary and the context

	mu      sync.Mutex
	pending []*job
	wake    func()
}

// NewStage returns the stage 0 of a model. It does not keep its weights.
func NewStage(b *weights.Bundle) (*Stage, error) {
	c := b.Model.Config()
	v, err := tiny.NewVocabulary(b.Tokenizer, c.Vocab)
	if err != nil {
		return nil, err
	}
	return &Stage{vocabulary: v, size: c.Vocab, room: c.Context, wake: func() {}}, nil
}

// OnPending sets the function that is called when a prompt is added; nil sets none.
func (s *Stage) OnPending(wake func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wake = wake
}

// Vocab returns the number of tokens of the model.
func (s *Stage) Vocab() int { return s.size }

// Context returns the most tokens of a prompt and its answer.
func (s *Stage) Context() int { return s.room }

// Slots returns how many prompts can be in the pipeline at once.
func (s *Stage) Slots() int { return ChunkPrompts * (pipeline.DIn + pipeline.DOut) }

// job is a prompt that waits for its answer.
type job struct {
	ctx  context.Context
	q    tiny.GenerationRequest
	done chan outcome // has room for one
}

type outcome struct {
	out tiny.GenerationResult
	err error
}

// Generate answers a request through the pipeline. A request for log probabilities is
// refused: results hold tokens alone.
func (s *Stage) Generate(ctx context.Context, q tiny.GenerationRequest) (tiny.GenerationResult, error) {
	if q.Logprobs >= 0 {
		return tiny.GenerationResult{}, &fault.Error{Kind: fault.Invalid, Class: fault.Refused,
			Err:    fault.New(fault.Invalid, "a pipeline returns no log probabilities"),
			Remedy: "remove logprobs from the request, or use a pool with the executor infer"}
	}
	j := &job{ctx, q, make(chan outcome, 1)}
	s.mu.Lock()
	s.pending = append(s.pending, j)
	s.mu.Unlock()
	s.notify()
	select {
	case o := <-j.done:
		if o.err == nil && q.OnDelta != nil {
			q.OnDelta(tiny.Delta{Text: o.out.Text, Finish: o.out.Finish})
		}
		return o.out, o.err
	case <-ctx.Done():
		return tiny.GenerationResult{}, fault.WithKind(fault.Canceled, context.Cause(ctx), "wait for the pipeline")
	}
}

func (s *Stage) notify() {
	s.mu.Lock()
	wake := s.wake
	s.mu.Unlock()
	if wake != nil {
		wake()
	}
}

// Pending implements stage0.Source.
func (s *Stage) Pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discardEnded()
	return len(s.pending) > 0
}

// discardEnded removes the prompts whose callers have gone.
func (s *Stage) discardEnded() {
	kept := s.pending[:0]
	for _, j := range s.pending {
		if j.ctx.Err() == nil {
			kept = append(kept, j)
		}
	}
	clear(s.pending[len(kept):])
	s.pending = kept
}

// Take implements stage0.Source.
func (s *Stage) Take() stage0.Chunk {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discardEnded()
	n := min(len(s.pending), ChunkPrompts)
	if n == 0 {
		return nil
	}
	c := &chunk{stage: s, jobs: append([]*job(nil), s.pending[:n]...)}
	s.pending = s.pending[n:]
	return c
}

// chunk is some prompts on their way through the pipeline.
type chunk struct {
	stage *Stage
	jobs  []*job
}

// Prepare implements stage0.Chunk.
func (c *chunk) Prepare() (*wire.Envelope, error) {
	var tokens, lengths []int64
	var requests []request
	e := &wire.Envelope{Height: len(c.jobs), Width: 1, InitCache: true, ResetKVCache: true, ResetCrossAttnCache: true,
		BaseSeed: int64(c.jobs[0].q.Seed)}
	for _, j := range c.jobs {
		for _, t := range j.q.Prompt {
			tokens = append(tokens, int64(t))
		}
		lengths = append(lengths, int64(len(j.q.Prompt)))
		e.Width = max(e.Width, len(j.q.Prompt))
		e.NumDenoiseSteps = max(e.NumDenoiseSteps, j.q.Max)
		q := j.q
		requests = append(requests, request{q.Max, q.Min, q.Sampling, q.Seed, q.Stop, q.StopIDs, q.KeepStop, q.IgnoreEOS})
	}
	b, err := json.Marshal(requests)
	if err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "serialize the requests")
	}
	steps := make([]int64, e.NumDenoiseSteps)
	for i := range steps {
		steps[i] = int64(i)
	}
	e.Tensors = []wire.Tensor{wire.Int64s("prompt_tokens", tokens), wire.Int64s("prompt_lengths", lengths),
		{Spec: wire.Spec{Key: "requests", DType: wire.UInt8, Shape: []int{len(b)}}, Data: b},
		wire.Int64s(wire.KeySteps, steps)}
	return e, nil
}

// Decode implements stage0.Chunk.
func (c *chunk) Decode(r *wire.Result) error {
	parts, err := split(r.Tensor("answer_tokens"), r.Tensor("answer_lengths"), c.stage.size)
	if err != nil || len(parts) != len(c.jobs) {
		return fault.WithKind(fault.Corrupt, err, "the answers of %d prompts for %d", len(parts), len(c.jobs))
	}
	answers := make([]tiny.GenerationResult, len(parts))
	for i, j := range c.jobs {
		if answers[i], err = c.stage.vocabulary.Replay(j.q, parts[i]); err != nil {
			return err
		}
	}
	for i, j := range c.jobs {
		j.done <- outcome{out: answers[i]}
	}
	return nil
}

// Fail implements stage0.Chunk.
func (c *chunk) Fail(err error) {
	for _, j := range c.jobs {
		j.done <- outcome{err: err}
	}
}

// Flushed implements stage0.Chunk: prompts that are still waited for are sent again, first.
func (c *chunk) Flushed() {
	c.stage.mu.Lock()
	defer c.stage.mu.Unlock()
	c.stage.pending = append(c.jobs, c.stage.pending...)
}

// split cuts tokens into sequences of the given lengths.
func split(tokens, lengths wire.Tensor, vocab int) ([][]int32, error) {
	all := tokens.Int64s()
	var out [][]int32
	for i, n := range lengths.Int64s() {
		if n < 0 || n > int64(len(all)) {
			return nil, fault.New(fault.Corrupt, "sequence %d has %d tokens: %d are left", i, n, len(all))
		}
		part := make([]int32, n)
		for k, t := range all[:n] {
			if t < 0 || t >= int64(vocab) {
				return nil, fault.New(fault.Corrupt, "sequence %d has the token %d: the vocabulary has ids 0 to %d", i, t,
					vocab-1)
			}
			part[k] = int32(t)
		}
		out, all = append(out, part), all[n:]
	}
	if len(all) > 0 {
		return nil, fault.New(fault.Corrupt, "%d tokens belong to no sequence", len(all))
	}
	return out, nil
}
