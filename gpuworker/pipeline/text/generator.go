package text

import (
	"encoding/json"

	"rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/pipeline/group"
	"rollout/gpuworker/pipeline/stage1"
	"rollout/gpuworker/pipeline/wire"
	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/weights"
	"rollout/shared/fault"
)

// Generator is stage 1 on one rank of the mesh, with a part of the model.
type Generator struct {
	model      *model.Model
	runner     *model.Runner
	vocabulary *tiny.Vocabulary
}

// NewGenerator returns the part of a rank.
func NewGenerator(b *weights.Bundle, m *group.Mesh) (*Generator, error) {
	runner, err := model.NewPart(b.Model, m.Rank(), m.Size(), m.AllGatherFloats)
	if err != nil {
		return nil, err
	}
	v, err := tiny.NewVocabulary(b.Tokenizer, b.Model.Config().Vocab)
	return &Generator{b.Model, runner, v}, err
}

// sequence is a prompt and its answer so far.
type sequence struct {
	session *model.Session
	answer  *tiny.Generation
	next    []int32 // the tokens that the model reads next; nil once the answer is complete
	drawn   []int64
}

// Plan implements stage1.Generator.
func (g *Generator) Plan(e *wire.Envelope) (int, error) {
	if e.DoKVRecompute {
		return 0, fault.New(fault.Invalid, "do_kv_recompute is true: text has no cache to recompute")
	}
	requests, _, err := g.read(e)
	if err != nil {
		return 0, err
	}
	calls := 0
	for _, q := range requests {
		calls = max(calls, q.Max)
	}
	return calls, nil
}

// read returns the requests and prompts of an envelope.
func (g *Generator) read(e *wire.Envelope) (requests []request, prompts [][]int32, err error) {
	c := g.model.Config()
	if prompts, err = split(e.Tensor("prompt_tokens"), e.Tensor("prompt_lengths"), c.Vocab); err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(e.Tensor("requests").Data, &requests); err != nil {
		return nil, nil, fault.WithKind(fault.Corrupt, err, "the requests")
	}
	if len(requests) != len(prompts) || len(requests) != e.Height || len(requests) > ChunkPrompts {
		return nil, nil, fault.New(fault.Corrupt, "%d requests for %d prompts: at most %d in a chunk", len(requests),
			len(prompts), ChunkPrompts)
	}
	for i, q := range requests {
		if err := q.Sampling.Check(c.Vocab); err != nil {
			return nil, nil, fault.Wrap(err, "request %d", i)
		}
		if len(prompts[i]) == 0 || q.Max < 1 || q.Max > c.Context-len(prompts[i]) {
			return nil, nil, fault.New(fault.Corrupt, "request %d: %d tokens after %d: the context is %d", i, q.Max,
				len(prompts[i]), c.Context)
		}
	}
	return requests, prompts, nil
}

// Generate implements stage1.Generator.
func (g *Generator) Generate(_ *group.Mesh, e *wire.Envelope) (stage1.Output, error) {
	requests, prompts, err := g.read(e)
	if err != nil {
		return stage1.Output{}, err
	}
	all := make([]*sequence, len(requests))
	for i, q := range requests {
		all[i] = &sequence{session: g.model.NewSession(), next: prompts[i], answer: g.vocabulary.Begin(tiny.GenerationRequest{
			Prompt: prompts[i], Max: q.Max, Min: q.Min, Sampling: q.Sampling, Seed: q.Seed, Stop: q.Stop, StopIDs: q.StopIDs,
			KeepStop: q.KeepStop, IgnoreEOS: q.IgnoreEOS, Logprobs: -1})}
	}
	var out stage1.Output
	for range e.NumDenoiseSteps {
		if err := g.step(all); err != nil {
			return out, err
		}
		out.Calls++
	}
	var tokens, lengths []int64
	for i, s := range all {
		if s.next != nil {
			return out, fault.New(fault.Internal, "the answer to prompt %d is not complete after %d calls", i, out.Calls)
		}
		tokens, lengths = append(tokens, s.drawn...), append(lengths, int64(len(s.drawn)))
		out.Frame = max(out.Frame, int64(s.session.Len()))
	}
	out.Tensors = []wire.Tensor{wire.Int64s("answer_tokens", tokens), wire.Int64s("answer_lengths", lengths)}
	return out, nil
}

// step draws one token for each answer that is not complete.
func (g *Generator) step(all []*sequence) error {
	var slots []model.Slot
	var live []*sequence
	for _, s := range all {
		if s.next != nil {
			slots, live = append(slots, model.Slot{Session: s.session, Tokens: s.next}), append(live, s)
		}
	}
	if len(live) == 0 {
		return nil
	}
	logits := make([][]float32, len(live))
	for i := range logits {
		logits[i] = make([]float32, g.model.Config().Vocab)
	}
	if err := g.runner.Step(slots, logits); err != nil {
		return err
	}
	for i, s := range live {
		id, more, err := s.answer.Next(logits[i])
		if err != nil {
			return err
		}
		s.drawn = append(s.drawn, int64(id))
		s.next = []int32{id}
		if !more {
			s.next = nil
		}
	}
	return nil
}
