package training

import (
	"context"
	"fmt"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/gpuworker/training/curve"
	"rollout/gpuworker/training/dataset"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// Base is a base model. The trainer changes Model in place.
type Base struct {
	URI        string // name in the settings
	Model      *model.Model
	Tokenizer  *tokenizer.Tokenizer
	RewardHead []float32 // score head of a reward model; nil otherwise
}

// Options configure a Trainer.
type Options struct {
	Algorithm config.Algorithm // valid settings
	Base      Base
	Dataset   *dataset.Index // opened with OpenDataset
	Threads   int            // at least 1; the result does not depend on it
	Scalar    bool           // use no vector instructions; the result does not depend on it
}

// Trainer is a training run. Only one goroutine may use it at a time.
type Trainer struct {
	algorithm config.Algorithm
	settings  config.CommonSettings
	model     *model.Model
	tokenizer *tokenizer.Tokenizer
	rows      *dataset.Index
	order     dataset.Order
	objective objective
	gradients *model.Gradients
	head      *head // nil unless a reward model is trained
	optimizer optimizer
	step      int
	curve     curve.Curve
}

// head is the score head of a reward model.
type head struct {
	score, gradient []float32 // [Width]
}

// Report is the result of a step.
type Report struct {
	Step      int     `json:"step"`      // number of the step, from 1
	Steps     int     `json:"steps"`     // total number of steps
	Loss      float64 `json:"loss"`      // mean over the counted tokens or pairs, in nats
	Tokens    int     `json:"tokens"`    // processed by the model
	Rows      int     `json:"rows"`      // examples or pairs
	Truncated int     `json:"cut"`       // number of these rows that were truncated
	LR        float64 `json:"lr"`        // learning rate
	GradNorm  float64 `json:"grad_norm"` // norm of the gradients before clipping
}

// OpenDataset opens a source and checks every row for the algorithm. Its errors are
// those of dataset.Open.
func OpenDataset(ctx context.Context, algorithm string, source dataset.Source) (*dataset.Index, error) {
	check := func(line []byte) error {
		_, err := dataset.ParseExample(line)
		return err
	}
	if algorithm == config.AlgorithmRM {
		check = func(line []byte) error {
			_, err := dataset.ParsePair(line)
			return err
		}
	}
	return dataset.Open(ctx, source, check)
}

// New returns a Trainer before its first step. Settings that do not fit the model
// are an Invalid fault.
func New(o Options) (*Trainer, error) {
	a, m := o.Algorithm, o.Base.Model
	s := a.Common()
	limit, err := sequenceLimit(s.MaxSeqLen, m.Config().Context)
	if err != nil {
		return nil, err
	}
	if v, most := o.Base.Tokenizer.Vocab(), m.Config().Vocab; v > most {
		return nil, fault.New(fault.Invalid, "base model %s: its tokenizer has %d tokens, the model %d",
			o.Base.URI, v, most)
	}
	t := &Trainer{
		algorithm: a, settings: s, model: m, tokenizer: o.Base.Tokenizer, rows: o.Dataset,
		order: dataset.Order{Seed: uint64(s.Seed), Rows: o.Dataset.Rows()}, gradients: model.NewGradients(m),
	}
	on := newCompute(o)
	m.UseKernels(on.Kernels)
	back := model.NewBackprop(m, on.Threads)
	code := encoder{tokenizer: o.Base.Tokenizer, limit: limit}
	if a.Kind == config.AlgorithmRM {
		t.head = &head{score: make([]float32, m.Config().Width), gradient: make([]float32, m.Config().Width)}
		copy(t.head.score, o.Base.RewardHead)
		t.objective = &rewardModel{back: back, encoder: code, head: t.head}
	} else {
		code.full = a.SFT.LossOn.Kind == config.LossFull
		t.objective = &supervised{back: back, encoder: code, packed: a.SFT.Packing.Kind == config.PackingOn}
	}
	t.optimizer, err = newOptimizer(t, on)
	return t, err
}

// sequenceLimit returns the maximum number of tokens of a sequence: maxSeqLen, or
// the context if maxSeqLen is 0.
func sequenceLimit(maxSeqLen, context int) (int, error) {
	switch {
	case maxSeqLen == 0:
		maxSeqLen = context
	case maxSeqLen > context:
		return 0, &fault.Error{
			Kind:   fault.Invalid,
			Err:    fault.New(fault.Invalid, "max_seq_len is %d, the model's context is %d", maxSeqLen, context),
			Remedy: "lower it, or remove it to use the whole context",
		}
	}
	if maxSeqLen < minSeqLen {
		return 0, fault.New(fault.Invalid, "max_seq_len is %d: rows need at least %d tokens", maxSeqLen, minSeqLen)
	}
	return maxSeqLen, nil
}

// objective computes the loss of rows and its gradient.
type objective interface {
	// learn returns the summed loss of the rows. If g is not nil, it adds the
	// gradient of that sum to g, and to the gradient of the score head.
	learn(rows []dataset.Row, g *model.Gradients) (lossStats, error)
}

// lossStats is the result of an objective for a number of rows.
type lossStats struct {
	loss    float64 // summed over the counted tokens or pairs
	counted int     // number of these
	tokens  int     // processed by the model
	cut     int     // rows that were truncated
	right   int     // pairs whose chosen answer has the higher reward
}

func (a *lossStats) add(b lossStats) {
	a.loss += b.loss
	a.counted += b.counted
	a.tokens += b.tokens
	a.cut += b.cut
	a.right += b.right
}

// Steps returns the number of steps taken and the total number of steps.
func (t *Trainer) Steps() (taken, all int) { return t.step, t.settings.Budget.MaxSteps }

// Done reports whether all steps have been taken.
func (t *Trainer) Done() bool { return t.step >= t.settings.Budget.MaxSteps }

// Curve returns the loss curve so far.
func (t *Trainer) Curve() curve.Curve { return t.curve }

// Step takes the next step. Its rows depend only on the seed and the step's number.
// A step that fails or is canceled changes nothing and can be taken again.
func (t *Trainer) Step(ctx context.Context) (Report, error) {
	t.gradients.Zero()
	if t.head != nil {
		clear(t.head.gradient)
	}
	var sum lossStats
	rows := t.settings.Minibatch
	first := uint64(t.step) * uint64(rows*t.settings.Accumulation)
	for i := range t.settings.Accumulation {
		if err := ctx.Err(); err != nil {
			return Report{}, fault.WithKind(fault.Canceled, err, "step %d", t.step+1)
		}
		batch, err := t.readRows(first+uint64(i*rows), rows)
		if err != nil {
			return Report{}, err
		}
		part, err := t.objective.learn(batch, t.gradients)
		if err != nil {
			return Report{}, t.diverged(err)
		}
		sum.add(part)
	}
	r := Report{
		Step: t.step + 1, Steps: t.settings.Budget.MaxSteps, Loss: sum.loss / float64(sum.counted),
		Tokens: sum.tokens, Rows: rows * t.settings.Accumulation, Truncated: sum.cut,
	}
	var err error
	if r.LR, r.GradNorm, err = t.optimizer.apply(t.step+1, 1/float32(sum.counted)); err != nil {
		return Report{}, t.diverged(err)
	}
	t.step++
	t.curve.Add(r.Loss)
	return r, nil
}

// readRows reads n rows of the training's order, from the given position.
func (t *Trainer) readRows(position uint64, n int) ([]dataset.Row, error) {
	rows := make([]dataset.Row, n)
	for i := range rows {
		var err error
		if rows[i], err = t.rows.Row(t.order.At(position + uint64(i))); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// diverged turns the Corrupt fault of a loss or gradient that is not finite into a
// Conflict fault with a remedy.
func (t *Trainer) diverged(err error) error {
	if !fault.Is(err, fault.Corrupt) {
		return fault.Wrap(err, "step %d", t.step+1)
	}
	return &fault.Error{
		Kind:   fault.Conflict,
		Err:    fmt.Errorf("the training diverged at step %d: its loss or gradient is not finite", t.step+1),
		Remedy: "lower optimizer.lr, raise warmup_steps, or set max_grad_norm; snapshots of earlier steps are intact",
	}
}

// Algorithm returns config.AlgorithmSFT or config.AlgorithmRM.
func (t *Trainer) Algorithm() string { return t.algorithm.Kind }
