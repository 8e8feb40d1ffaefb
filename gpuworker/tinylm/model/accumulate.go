package model

import "rollout/gpuworker/tinylm/kernel"

// A thread computes the gradient of a matrix in blocks of rowsPerBlock rows, and
// reads the tape in chunks of tokensPerChunk tokens, so that the data it works on
// fits into the cache.
const (
	rowsPerBlock   = 66 // a multiple of the kernel's six rows
	tokensPerChunk = 128
)

// gradientScratch holds a chunk of the tape in the layout that addMatrix needs.
type gradientScratch struct{ inputs, outputs []float32 }

// matrixBlock is a block of rows of the gradient [outs, ins] of a matrix, to
// which the sum over tokens of output ⊗ input is added.
type matrixBlock struct {
	gradient       []float32
	inputs         []float32 // [tokens, ins]
	outputs        []float32 // [tokens, outs]
	tokens         int
	outs, ins      int
	firstRow, rows int
}

// gainBlock is the gradient of a gain, to which the shares of all tokens are
// added.
type gainBlock struct {
	gradient, shares []float32
}

// accumulate adds the gradients on the tape to g. The tape has a row for each of
// tokens tokens; logits of them have gradients of logits.
func (b *Backprop) accumulate(tokens, logits int, g *Gradients) {
	c := b.model.config
	attention := c.Heads * c.HeadSize
	var matrices []matrixBlock
	add := func(m matrixBlock) {
		for m.firstRow = 0; m.firstRow < m.outs; m.firstRow += rowsPerBlock {
			m.rows = min(rowsPerBlock, m.outs-m.firstRow)
			matrices = append(matrices, m)
		}
	}
	var gains []gainBlock
	add(matrixBlock{
		gradient: g.embed, inputs: b.tape.final, outputs: b.tape.logits, tokens: logits, outs: c.Vocab, ins: c.Width,
	})
	for i := range g.layers {
		l, t := &g.layers[i], &b.tape.layers[i]
		addLayer := func(gradient, inputs, outputs []float32, outs, ins int) {
			add(matrixBlock{gradient: gradient, inputs: inputs, outputs: outputs, tokens: tokens, outs: outs, ins: ins})
		}
		addLayer(l.gate, t.mlpInput, t.gate, c.Hidden, c.Width)
		addLayer(l.up, t.mlpInput, t.up, c.Hidden, c.Width)
		addLayer(l.down, t.hidden, t.output, c.Width, c.Hidden)
		addLayer(l.q, t.input, t.query, attention, c.Width)
		addLayer(l.k, t.input, t.key, attention, c.Width)
		addLayer(l.v, t.input, t.value, attention, c.Width)
		addLayer(l.o, t.attended, t.mid, c.Width, attention)
		gains = append(gains, gainBlock{l.attentionNorm, t.attentionShare}, gainBlock{l.mlpNorm, t.mlpShare})
	}
	gains = append(gains, gainBlock{g.norm, b.tape.finalShare})
	kernel.Parallel(len(b.threads), len(matrices)+len(gains), func(thread, i int) {
		if w := b.threads[thread]; i < len(matrices) {
			w.addMatrix(matrices[i])
		} else {
			w.addGain(gains[i-len(matrices)])
		}
	})
}

func (w *backpropThread) addMatrix(t matrixBlock) {
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

func (w *backpropThread) addGain(t gainBlock) {
	n := len(t.gradient)
	for x := t.shares; len(x) >= n; x = x[n:] {
		w.kernels.Add(t.gradient, x[:n])
	}
}

// embed adds the gradients of the embedded tokens to the gradient of the
// embedding, in the order of the batch.
func (b *Backprop) embed(batch []Sequence, g *Gradients) {
	width, i := b.model.config.Width, 0
	for _, q := range batch {
		for _, t := range q.Tokens {
			b.model.kernels.Add(g.embed[int(t)*width:(int(t)+1)*width], b.input[i*width:(i+1)*width])
			i++
		}
	}
}
