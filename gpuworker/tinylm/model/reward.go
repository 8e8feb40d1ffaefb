package model

import (
	"rollout/gpuworker/tinylm/kernel"
	"rollout/shared/fault"
)

// Rewards uses the model as a reward model. It returns score·h for each
// sequence, where h is the normalised state of the last token. score is the
// score head, "score.weight" [1, Width]. Targets are ignored. Faults are those
// of Loss.
func (b *Backprop) Rewards(batch []Sequence, score []float32) ([]float32, error) {
	rewards := make([]float32, len(batch))
	err := b.rewards(batch, score, rewards, nil)
	return rewards, err
}

// RewardGradient adds the gradients of Σ d[i]·reward(i) to g and dScore. d[i] is
// the derivative of a loss with respect to the reward of sequence i.
func (b *Backprop) RewardGradient(batch []Sequence, score, d []float32, g *Gradients, dScore []float32) error {
	if len(d) != len(batch) {
		return fault.New(fault.Invalid, "model: %d derivatives for %d sequences", len(d), len(batch))
	}
	if g == nil || len(dScore) != len(score) {
		return fault.New(fault.Invalid, "model: a reward's gradient needs g and %d floats of dScore, got %d",
			len(score), len(dScore))
	}
	return b.rewards(batch, score, make([]float32, len(batch)), &rewardGradient{d: d, g: g, dScore: dScore})
}

// rewardGradient holds the arguments of RewardGradient.
type rewardGradient struct {
	d      []float32
	g      *Gradients
	dScore []float32
}

// rewards computes the rewards of a batch. With grad, it also runs backward and
// adds to the gradients.
func (b *Backprop) rewards(batch []Sequence, score, rewards []float32, grad *rewardGradient) error {
	var g *Gradients
	var d, dScore []float32
	if grad != nil {
		g, d, dScore = grad.g, grad.d, grad.dScore
	}
	if err := b.check(batch, g, false); err != nil {
		return err
	}
	width := b.model.config.Width
	if len(score) != width {
		return fault.New(fault.Invalid, "model: the score head has %d floats: the model's width is %d", len(score), width)
	}
	b.refresh(g != nil)
	resize(&b.input, countTokens(batch)*width)
	first, sequence := 0, 0
	for group := range b.groups(batch) {
		rows, heads := layOut(group, func(Sequence) int { return 1 })
		b.tape.resize(b.model.config, rows.total, heads.total, g != nil)
		kernel.Parallel(len(b.threads), len(group), func(thread, i int) {
			w := b.threads[thread]
			w.place(group[i], rows.at[i], heads.at[i], first+rows.at[i], g != nil)
			w.run()
			rewards[sequence+i] = w.reward(score)
			if g != nil {
				w.rewardBack(score, d[sequence+i])
				w.backpropagate()
			}
		})
		if i := b.model.notFinite(rewards[sequence : sequence+len(group)]); i >= 0 {
			return fault.New(fault.Corrupt,
				"model: the reward of sequence %d of the batch is %v: the weights are damaged or training diverged",
				sequence+i, rewards[sequence+i])
		}
		if g != nil {
			for i := range group {
				final := b.tape.final[i*width : (i+1)*width]
				for j, v := range final {
					dScore[j] += float32(d[sequence+i] * v)
				}
			}
			b.accumulate(rows.total, 0, g)
		}
		first += rows.total
		sequence += len(group)
	}
	if g != nil {
		b.embed(batch, g)
	}
	return nil
}

// reward returns the score of the sequence's last token.
func (w *backpropThread) reward(score []float32) float32 {
	width := w.config.Width
	x := w.x[len(w.x)-width:]
	resize(&w.inverse, 1)
	w.inverse[0] = w.kernels.InverseRMS(x, w.config.NormEpsilon)
	final := w.b.tape.final[w.head*width : (w.head+1)*width]
	w.kernels.ScaleBy(final, x, w.b.model.norm, w.inverse[0])
	return w.kernels.Dot(final, score)
}

// rewardBack writes the gradient of the last layer's result to w.d.
func (w *backpropThread) rewardBack(score []float32, d float32) {
	width := w.config.Width
	clear(w.d)
	copy(w.n[:width], score)
	w.kernels.Scale(w.n[:width], d)
	last := len(w.x) - width
	share := w.b.tape.finalShare[w.head*width : (w.head+1)*width]
	w.kernels.NormBackward(w.d[last:], share, w.n[:width], w.x[last:], w.b.model.norm, w.inverse[0])
}

func countTokens(batch []Sequence) int {
	n := 0
	for _, q := range batch {
		n += len(q.Tokens)
	}
	return n
}
