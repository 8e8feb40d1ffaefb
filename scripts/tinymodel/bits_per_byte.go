package main

import (
	"context"
	"math"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/weights"
	"rollout/scripts/tinymodel/corpus"
	"rollout/shared/fault"
)

// measurement is the information that a model needs to predict documents.
type measurement struct {
	bits   float64
	bytes  int
	tokens int
}

// perByte returns the bits per byte.
func (r measurement) perByte() float64 { return r.bits / float64(r.bytes) }

// windowsAtOnce is the number of windows predicted together.
const windowsAtOnce = 64

// measureBits measures how well a model predicts documents, in bits per byte: the
// number of bits that an ideal coder needs with the model's probabilities, divided
// by the length of the texts in bytes. Unlike the loss per token, bits per byte are
// comparable between models with different vocabularies.
//
// Each document is predicted by itself, after EndOfText. A document longer than the
// context is read in windows that overlap by half. Of each window except the first,
// only the second half counts, so that each token is predicted once, after at least
// half a context if the document has so many tokens before it. The EndOfText at the
// end of a document counts in bits, but has no bytes.
//
// The documents must be texts, not chats. If ctx is canceled, measureBits returns
// its error.
func measureBits(
	ctx context.Context, b *weights.Bundle, documents []corpus.Document, threads int,
) (r measurement, err error) {
	var windows []model.Sequence
	for _, d := range documents {
		if d.Text == "" {
			return measurement{}, fault.New(fault.Invalid, "document %s is not a text", d.ID)
		}
		r.bytes += len(d.Text)
		eot := b.Tokenizer.EndOfText()
		tokens := append(b.Tokenizer.Encode([]int32{eot}, d.Text), eot)
		windows = append(windows, overlappingWindows(tokens, b.Model.Config().Context)...)
	}
	back := model.NewBackprop(b.Model, threads)
	for len(windows) > 0 {
		if err := ctx.Err(); err != nil {
			return measurement{}, err
		}
		n := min(windowsAtOnce, len(windows))
		nats, counted, err := back.Loss(windows[:n], 0, nil)
		if err != nil {
			return measurement{}, err
		}
		r.bits += nats / math.Ln2
		r.tokens += counted
		windows = windows[n:]
	}
	return r, nil
}

// overlappingWindows cuts tokens into windows of at most size tokens. Each token
// except the first is a counted target of one window.
func overlappingWindows(tokens []int32, size int) (out []model.Sequence) {
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
