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

// Base is a model to begin with. The trainer changes Model in place.
type Base struct {
	URI        string // as settings name it
	Model      *model.Model
	Tokenizer  *tokenizer.Tokenizer
	RewardHead []float32 // the head of a reward model; nil if it is none
}

// Options say what is trained.
type Options struct {
	Algorithm config.Algorithm // checked
	Base      Base
	Dataset   *dataset.Index // of OpenDataset
	Threads   int            // at least 1; any number gives the same bytes
	Scalar    bool           // without vector instructions: the same bytes, slowly
}

// Trainer is a training between two steps. One goroutine uses it at a time.
type Trainer struct {
	algorithm config.Algorithm
	settings  config.CommonSettings
	model     *model.Model
	tokenizer *tokenizer.Tokenizer
	rows      *dataset.Index
	order     dataset.Order
	objective objective
	gradients *model.Gradients
	head      *head // nil if no reward model is trained
	optimizer optimizer
	step      int
	curve     curve.Curve
}

// head is the reward of a reward model's last state.
type head struct {
	score, gradient []float32 // [Width]
}

// Report tells how a step went.
type Report struct {
	Step      int     `json:"step"` // from 1
	Steps     int     `json:"steps"`
	Loss      float64 `json:"loss"`      // mean over the tokens or pairs that count, in nats
	Tokens    int     `json:"tokens"`    // that went through the model
	Rows      int     `json:"rows"`      // examples or pairs
	Truncated int     `json:"cut"`       // of them, that were too long and lost a part
	LR        float64 `json:"lr"`        // that the step was taken with
	GradNorm  float64 `json:"grad_norm"` // before it was clipped
}

// OpenDataset checks every row of a source for the algorithm; see
// dataset.Open.
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

// New returns a training before its first step. Settings that do not fit the
// model are Invalid.
func New(o Options) (*Trainer, error) {
	a, m := o.Algorithm, o.Base.Model
	s := a.Common()
	limit, err := sequenceLimit(s.MaxSeqLen, m.Config().Context)
	if err != nil {
		return nil, err
	}
	if v, most := o.Base.Tokenizer.Vocab(), m.Config().Vocab; v > most {
		return nil, fault.New(fault.Invalid, "base model %s: its tokenizer has %d tokens, the model %d", o.Base.URI, v, most)
	}
	t := &Trainer{algorithm: a, settings: s, model: m, tokenizer: o.Base.Tokenizer, rows: o.Dataset,
		order: dataset.Order{Seed: uint64(s.Seed), Rows: o.Dataset.Rows()}, gradients: model.NewGradients(m)}
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

func sequenceLimit(asked, context int) (int, error) {
	switch {
	case asked == 0:
		asked = context
	case asked > context:
		return 0, &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, "max_seq_len is %d, the model's context is %d", asked, context), Remedy: "lower it, or leave it out to use the context"}
	}
	if asked < minSeqLen {
		return 0, fault.New(fault.Invalid, "max_seq_len is %d: rows need at least %d tokens", asked, minSeqLen)
	}
	return asked, nil
}

// objective is what a training learns from rows.
type objective interface {
	// learn adds the gradient of the summed loss of the rows to g, and to its
	// head's.
	learn(rows []dataset.Row, g *model.Gradients) (lossStats, error)
}

// lossStats is what rows amount to.
type lossStats struct {
	loss    float64 // summed over what counts
	counted int     // tokens, or pairs
	tokens  int
	cut     int // rows that lost a part
	right   int // pairs of which the chosen one has the higher reward
}

func (a *lossStats) add(b lossStats) {
	a.loss += b.loss
	a.counted += b.counted
	a.tokens += b.tokens
	a.cut += b.cut
	a.right += b.right
}

// Steps is the number of steps taken, and of all there are.
func (t *Trainer) Steps() (taken, all int) { return t.step, t.settings.Budget.MaxSteps }

// Done reports whether all steps are taken.
func (t *Trainer) Done() bool { return t.step >= t.settings.Budget.MaxSteps }

// Curve is the losses so far.
func (t *Trainer) Curve() curve.Curve { return t.curve }

// Step takes the next step. A step that fails or is canceled has changed
// nothing: it can be taken again. Which rows it learns from is a pure function
// of the seed and the step's number.
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
		batch, err := t.take(first+uint64(i*rows), rows)
		if err != nil {
			return Report{}, err
		}
		part, err := t.objective.learn(batch, t.gradients)
		if err != nil {
			return Report{}, t.diverged(err)
		}
		sum.add(part)
	}
	r := Report{Step: t.step + 1, Steps: t.settings.Budget.MaxSteps, Loss: sum.loss / float64(sum.counted), Tokens: sum.tokens,
		Rows: rows * t.settings.Accumulation, Truncated: sum.cut}
	var err error
	if r.LR, r.GradNorm, err = t.optimizer.apply(t.step+1, 1/float32(sum.counted)); err != nil {
		return Report{}, t.diverged(err)
	}
	t.step++
	t.curve.Add(r.Loss)
	return r, nil
}

// take reads n rows in the training's order.
func (t *Trainer) take(position uint64, n int) ([]dataset.Row, error) {
	rows := make([]dataset.Row, n)
	for i := range rows {
		var err error
		if rows[i], err = t.rows.Row(t.order.At(position + uint64(i))); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// diverged says what to do about losses and gradients that are no numbers.
func (t *Trainer) diverged(err error) error {
	if !fault.Is(err, fault.Corrupt) {
		return fault.Wrap(err, "step %d", t.step+1)
	}
	return &fault.Error{Kind: fault.Conflict, Err: fmt.Errorf("the training diverged at step %d: its loss or gradient is no finite number", t.step+1),
		Remedy: "lower optimizer.lr, raise warmup_steps, or set max_grad_norm; snapshots of earlier steps are as they were"}
}

// Algorithm is what is trained: config.AlgorithmSFT or config.AlgorithmRM.
func (t *Trainer) Algorithm() string { return t.algorithm.Kind }
