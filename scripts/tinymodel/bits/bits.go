// Package bits measures how well a model predicts text, in bits per byte: the
// number of bits that an ideal coder would need with the model's probabilities,
// divided by the text's length in bytes. Unlike a loss per token it can be
// compared between models with different vocabularies.
//
// Each document is predicted by itself, after EndOfText. A document longer than
// the context is read in windows that overlap by half: of each window but the
// first, only the second half counts, so that each token is predicted once,
// after at least half a context where the document has so much. The
// EndOfText at a document's end counts in bits, and has no bytes.
package bits

import (
	"context"
	"math"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/weights"
	"rollout/scripts/tinymodel/corpus"
	"rollout/shared/fault"
)

// Result is a measurement.
type Result struct {
	Bits   float64
	Bytes  int
	Tokens int
}

// PerByte is the bits for one byte.
func (r Result) PerByte() float64 { return r.Bits / float64(r.Bytes) }

// batch is how many windows are predicted at a time.
const batch = 64

// Measure measures documents, which must be texts. It stops with the context's error
// when that ends.
func Measure(ctx context.Context, b *weights.Bundle, documents []corpus.Document, threads int) (r Result, err error) {
	var windows []model.Sequence
	for _, d := range documents {
		if d.Text == "" {
			return Result{}, fault.New(fault.Invalid, "document %s is not a text", d.ID)
		}
		r.Bytes += len(d.Text)
		eot := b.Tokenizer.EndOfText()
		tokens := append(b.Tokenizer.Encode([]int32{eot}, d.Text), eot)
		windows = append(windows, overlap(tokens, b.Model.Config().Context)...)
	}
	back := model.NewBackprop(b.Model, threads)
	for len(windows) > 0 {
		if err := ctx.Err(); err != nil {
			return Result{}, err
		}
		n := min(batch, len(windows))
		nats, counted, err := back.Loss(windows[:n], 0, nil)
		if err != nil {
			return Result{}, err
		}
		r.Bits += nats / math.Ln2
		r.Tokens += counted
		windows = windows[n:]
	}
	return r, nil
}

// overlap cuts tokens into windows of at most size, in which each token but the
// first is a target that counts once.
func overlap(tokens []int32, size int) (out []model.Sequence) {
	counted := 0 // targets so far
	for counted < len(tokens)-1 {
		end := min(len(tokens)-1, max(size, counted+(size+1)/2))
		start := max(0, end-size)
		w := model.Sequence{Tokens: tokens[start:end], Targets: make([]int32, end-start)}
		for i := range w.Targets {
			w.Targets[i] = -1
			if start+i >= counted {
				w.Targets[i] = tokens[start+i+1]
			}
		}
		counted = end
		out = append(out, w)
	}
	return out
}
