package tiny

import (
	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/scheduler"
	"rollout/gpuworker/tinylm/weights"
)

// Load starts an engine for a model that was read from a file, on up to threads
// goroutines.
func Load(b *weights.Bundle, threads int, batch scheduler.Config) (*Engine, error) {
	return New(Config{
		Name: b.Name, Revision: b.Digest, Model: Decoder(b.Model, threads), Tokenizer: b.Tokenizer,
		ChatTurns: b.ChatTurns, Batch: batch,
	})
}

// decoder adapts a model to the scheduler's interface.
type decoder struct {
	model  *model.Model
	runner *model.Runner
	slots  []model.Slot
}

// Decoder returns the model as the scheduler runs it, on up to threads
// goroutines. It copies the parameters.
func Decoder(m *model.Model, threads int) scheduler.Model {
	return &decoder{model: m, runner: model.NewRunner(m, threads)}
}

func (d *decoder) Vocab() int                      { return d.model.Config().Vocab }
func (d *decoder) Context() int                    { return d.model.Config().Context }
func (d *decoder) NewSequence() scheduler.Sequence { return d.model.NewSession() }

func (d *decoder) Step(slots []scheduler.Slot, logits [][]float32) error {
	d.slots = d.slots[:0]
	for _, s := range slots {
		d.slots = append(d.slots, model.Slot{Session: s.Sequence.(*model.Session), Tokens: s.Tokens})
	}
	return d.runner.Step(d.slots, logits)
}

func (d *decoder) AllLogits(tokens []int32, each func(at int, logits []float32)) error {
	return d.runner.AllLogits(tokens, each)
}
