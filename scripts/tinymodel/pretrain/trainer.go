package pretrain

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"

	"lukechampine.com/blake3"

	"rollout/gpuworker/tinylm/kernel"
	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/optimize"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/shared/fault"
)

// Trainer is a training run. It is not safe for concurrent use.
type Trainer struct {
	recipe    Recipe
	tokenizer *tokenizer.Tokenizer
	stream    *Stream
	on        optimize.Compute

	model    *model.Model
	moments  [2]*model.Gradients // first and second moment of each parameter
	gradient *model.Gradients
	backprop *model.Backprop
	threads  int
	done     int // steps taken
}

// New returns a trainer with a new model. Faults are Invalid.
func New(r Recipe, t *tokenizer.Tokenizer, s *Stream, threads int) (*Trainer, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	if s.windows(r.Context) < 1 {
		return nil, fault.New(fault.Invalid, "the documents have %d tokens, fewer than two sequences of %d",
			s.Len(), r.Context)
	}
	m, err := model.New(r.Config(t.Vocab()), r.Seed)
	if err != nil {
		return nil, err
	}
	return newTrainer(r, t, s, m, threads), nil
}

func newTrainer(r Recipe, t *tokenizer.Tokenizer, s *Stream, m *model.Model, threads int) *Trainer {
	return &Trainer{
		recipe: r, tokenizer: t, stream: s, model: m, threads: threads,
		on:       optimize.Compute{Kernels: kernel.Best(), Threads: threads},
		moments:  [2]*model.Gradients{model.NewGradients(m), model.NewGradients(m)},
		gradient: model.NewGradients(m),
		backprop: model.NewBackprop(m, threads),
	}
}

// StepsDone returns the number of steps taken.
func (t *Trainer) StepsDone() int { return t.done }

// Model returns the current model. The next step changes it.
func (t *Trainer) Model() *model.Model { return t.model }

// Step takes one step and returns the loss before it, in nats per token.
func (t *Trainer) Step() (loss float64, err error) {
	r := t.recipe
	batch := t.stream.Batch(t.done, r.Batch, r.Context)
	t.gradient.Zero()
	sum, counted, err := t.backprop.Loss(batch, 1/float32(r.Batch*r.Context), t.gradient)
	if err != nil {
		return 0, fault.Wrap(err, "step %d", t.done+1)
	}
	if _, err := optimize.Clip(t.on, t.gradient.Flat(), r.Clip); err != nil {
		return 0, fault.Wrap(err, "step %d", t.done+1)
	}
	rate := r.schedule().Rate(t.done + 1)
	first, second, gradient := t.moments[0].Tensors(), t.moments[1].Tensors(), t.gradient.Tensors()
	for i, p := range t.model.Tensors() {
		a := r.adamW()
		if len(p.Shape) < 2 {
			a.WeightDecay = 0
		}
		state := optimize.AdamWState{
			Parameters: p.Data, Gradients: gradient[i].Data, First: first[i].Data, Second: second[i].Data,
		}
		if err := a.Step(t.on, state, t.done+1, rate); err != nil {
			return 0, fault.Wrap(err, "step %d", t.done+1)
		}
	}
	t.done++
	return sum / float64(counted), nil
}

// Digest returns the blake3-256 of the parameters and both moments, in hex. Two
// trainers with the same digest, recipe and stream continue in the same way.
func (t *Trainer) Digest() string {
	h := blake3.New(32, nil)
	var b []byte
	for _, flat := range [][]float32{t.model.Flat(), t.moments[0].Flat(), t.moments[1].Flat()} {
		for part := range slices.Chunk(flat, 4096) {
			b = b[:0]
			for _, v := range part {
				b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
			}
			_, _ = h.Write(b)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}
