package model

import "rollout/gpuworker/tinylm/kernel"

// The gradient of a matrix is cut into ranges of rowsPerTask rows, and the tape
// is read in chunks of tokensPerChunk, so that what a task works on stays near.
const (
	rowsPerTask    = 66 // a multiple of the six rows that the kernel takes
	tokensPerChunk = 128
)

// gradientScratch holds a chunk of the tape, as a task wants it.
type gradientScratch struct{ inputs, outputs []float32 }

// matrixTask adds to gradient [outs, ins] the sum over tokens of
// output ⊗ input.
type matrixTask struct {
	gradient       []float32
	inputs         []float32 // [tokens, ins]
	outputs        []float32 // [tokens, outs]
	tokens         int
	outs, ins      int
	firstRow, rows int
}

// gainTask adds the tokens' shares to the gradient of a gain.
type gainTask struct {
	gradient, shares []float32
}

// accumulate adds what is on the tape to the gradients: tokens rows, of which
// logits have gradients of logits.
func (b *Backprop) accumulate(tokens, logits int, g *Gradients) {
	c := b.model.config
	attention := c.Heads * c.HeadSize
	var matrices []matrixTask
	add := func(gradient, inputs, outputs []float32, tokens, outs, ins int) {
		for r := 0; r < outs; r += rowsPerTask {
			matrices = append(matrices, matrixTask{gradient, inputs, outputs, tokens, outs, ins, r, min(rowsPerTask, outs-r)})
		}
	}
	var gains []gainTask
	add(g.embed, b.tape.final, b.tape.logits, logits, c.Vocab, c.Width)
	for i := range g.layers {
		l, t := &g.layers[i], &b.tape.layers[i]
		add(l.gate, t.mlpInput, t.gate, tokens, c.Hidden, c.Width)
		add(l.up, t.mlpInput, t.up, tokens, c.Hidden, c.Width)
		add(l.down, t.hidden, t.output, tokens, c.Width, c.Hidden)
		add(l.q, t.input, t.query, tokens, attention, c.Width)
		add(l.k, t.input, t.key, tokens, attention, c.Width)
		add(l.v, t.input, t.value, tokens, attention, c.Width)
		add(l.o, t.attended, t.mid, tokens, c.Width, attention)
		gains = append(gains, gainTask{l.attentionNorm, t.attentionShare}, gainTask{l.mlpNorm, t.mlpShare})
	}
	gains = append(gains, gainTask{g.norm, b.tape.finalShare})
	kernel.Parallel(len(b.threads), len(matrices)+len(gains), func(thread, i int) {
		if w := b.threads[thread]; i < len(matrices) {
			w.addMatrix(matrices[i])
		} else {
			w.addGain(gains[i-len(matrices)])
		}
	})
}

func (w *backpropThread) addMatrix(t matrixTask) {
	inputs := matrix(&w.gradient.inputs, tokensPerChunk, t.ins)
	resize(&w.gradient.outputs, tokensPerChunk*t.rows)
	outputs := w.gradient.outputs
	for first := 0; first < t.tokens; first += tokensPerChunk {
		n := min(tokensPerChunk, t.tokens-first)
		w.kernels.PackRows(inputs, t.inputs[first*t.ins:], n, t.ins, t.ins)
		for i := range n {
			copy(outputs[i*t.rows:(i+1)*t.rows], t.outputs[(first+i)*t.outs+t.firstRow:])
		}
		w.kernels.Product(t.gradient[t.firstRow*t.ins:], t.ins, columns(outputs, t.rows), inputs, t.rows, n, t.ins, true)
	}
}

func (w *backpropThread) addGain(t gainTask) {
	n := len(t.gradient)
	for x := t.shares; len(x) >= n; x = x[n:] {
		w.kernels.Add(t.gradient, x[:n])
	}
}

// embed adds the gradient of the embedded tokens to that of the embedding, in
// the order of the batch.
func (b *Backprop) embed(batch []Sequence, g *Gradients) {
	width, i := b.model.config.Width, 0
	for _, q := range batch {
		for _, t := range q.Tokens {
			b.model.kernels.Add(g.embed[int(t)*width:(int(t)+1)*width], b.input[i*width:(i+1)*width])
			i++
		}
	}
}
