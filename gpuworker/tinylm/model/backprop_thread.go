package model

import "rollout/gpuworker/tinylm/kernel"

// backpropThread is one thread of a Backprop. It runs one sequence at a time
// forward and backward, and stores the sequence's activations.
type backpropThread struct {
	b       *Backprop
	config  Config
	kernels kernel.Set

	// seq is the current sequence. at is its first row on the tape, head its
	// first row among those that reach the head, all its first row in the batch.
	seq           Sequence
	at, head, all int
	backward      bool

	saved   []saved
	x, d    []float32 // residual stream and its gradient [tokens, Width]
	n, m    []float32 // [tokens, max(Width, Heads*HeadSize)]
	hidden  []float32 // [tokens, Hidden]
	out     []float32 // logits of a block; used only without a backward pass
	inverse []float32 // InverseRMS of the final norm's rows [heads]
	attention
	gradient gradientScratch
}

// saved holds the activations of a layer that the backward pass needs.
type saved struct {
	in, mid       []float32 // residual stream before attention and before the MLP [tokens, Width]
	inF, midF     []float32 // InverseRMS of their rows
	q, k, v       []float32 // rotated [tokens, Heads*HeadSize]
	gate, up      []float32 // [tokens, Hidden]
	probabilities []float32 // of each document, head and position
}

func newBackpropThread(b *Backprop) *backpropThread {
	c := b.model.config
	return &backpropThread{b: b, config: c, kernels: b.model.kernels, saved: make([]saved, c.Layers)}
}

// place prepares the thread for a sequence and sizes its buffers.
func (w *backpropThread) place(q Sequence, at, head, all int, backward bool) {
	w.seq, w.at, w.head, w.all, w.backward = q, at, head, all, backward
	c, n := w.config, len(q.Tokens)
	attention := c.Heads * c.HeadSize
	resize(&w.x, n*c.Width)
	resize(&w.d, n*c.Width)
	resize(&w.n, n*max(c.Width, attention))
	resize(&w.m, n*max(c.Width, attention))
	resize(&w.hidden, n*c.Hidden)
	places := q.attention(c)
	for i := range w.saved {
		s := &w.saved[i]
		if i > 0 && !backward {
			break // without a backward pass, all layers share one set of buffers
		}
		resize(&s.in, n*c.Width)
		resize(&s.mid, n*c.Width)
		resize(&s.inF, n)
		resize(&s.midF, n)
		resize(&s.q, n*attention)
		resize(&s.k, n*attention)
		resize(&s.v, n*attention)
		resize(&s.gate, n*c.Hidden)
		resize(&s.up, n*c.Hidden)
		resize(&s.probabilities, places)
	}
}

// run runs the sequence through the layers and leaves the resulting states in
// w.x.
func (w *backpropThread) run() {
	c, k, m := w.config, w.kernels, w.b.model
	n, width, attention := len(w.seq.Tokens), c.Width, c.Heads*c.HeadSize
	for i, t := range w.seq.Tokens {
		copy(w.x[i*width:(i+1)*width], m.embed[int(t)*width:])
	}
	for l := range m.layers {
		par, wt, s := m.layers[l], w.b.forward.layers[l], &w.saved[0]
		input, attended, mlpInput, hidden := w.n, w.m, w.n, w.hidden
		if w.backward {
			s = &w.saved[l]
			t := &w.b.tape.layers[l]
			input, mlpInput = t.input[w.at*width:], t.mlpInput[w.at*width:]
			attended, hidden = t.attended[w.at*attention:], t.hidden[w.at*c.Hidden:]
		}
		copy(s.in, w.x)
		w.normalise(input, s.inF, par.attentionNorm)
		k.Product(s.q, attention, rows(input, width), wt.q, n, width, attention, false)
		k.Product(s.k, attention, rows(input, width), wt.k, n, width, attention, false)
		k.Product(s.v, attention, rows(input, width), wt.v, n, width, attention, false)
		w.rotate(s.q, s.k, false)
		w.attend(attended, s)
		k.Product(w.n, width, rows(attended, attention), wt.o, n, attention, width, false)
		k.Add(w.x, w.n[:n*width])

		copy(s.mid, w.x)
		w.normalise(mlpInput, s.midF, par.mlpNorm)
		k.Product(s.gate, c.Hidden, rows(mlpInput, width), wt.gate, n, width, c.Hidden, false)
		k.Product(s.up, c.Hidden, rows(mlpInput, width), wt.up, n, width, c.Hidden, false)
		k.SwiGLU(hidden[:n*c.Hidden], s.gate, s.up)
		k.Product(w.m, width, rows(hidden, c.Hidden), wt.down, n, c.Hidden, width, false)
		k.Add(w.x, w.m[:n*width])
	}
}

// backpropagate runs the backward pass from w.d, the gradient of the last
// layer's result, down to the embedding, and fills the tape.
func (w *backpropThread) backpropagate() {
	c, k, m := w.config, w.kernels, w.b.model
	n, width, attention := len(w.seq.Tokens), c.Width, c.Heads*c.HeadSize
	for l := len(m.layers) - 1; l >= 0; l-- {
		par, wt, s, t := m.layers[l], w.b.back.layers[l], &w.saved[l], &w.b.tape.layers[l]
		of := func(x []float32, width int) []float32 { return x[w.at*width : (w.at+n)*width] }

		gate, up := of(t.gate, c.Hidden), of(t.up, c.Hidden)
		copy(of(t.output, width), w.d)
		k.Product(w.hidden, c.Hidden, rows(w.d, width), wt.down, n, width, c.Hidden, false)
		k.SwiGLUBackward(gate, up, s.gate, s.up, w.hidden)
		k.Product(w.n, width, rows(gate, c.Hidden), wt.gate, n, c.Hidden, width, false)
		k.Product(w.n, width, rows(up, c.Hidden), wt.up, n, c.Hidden, width, true)
		w.normaliseBack(of(t.mlpShare, width), w.n, s.mid, s.midF, par.mlpNorm)

		query, key, value := of(t.query, attention), of(t.key, attention), of(t.value, attention)
		copy(of(t.mid, width), w.d)
		k.Product(w.m, attention, rows(w.d, width), wt.o, n, width, attention, false)
		w.attendBack(query, key, value, w.m, s)
		w.rotate(query, key, true)
		k.Product(w.n, width, rows(query, attention), wt.q, n, attention, width, false)
		k.Product(w.n, width, rows(key, attention), wt.k, n, attention, width, true)
		k.Product(w.n, width, rows(value, attention), wt.v, n, attention, width, true)
		w.normaliseBack(of(t.attentionShare, width), w.n, s.in, s.inF, par.attentionNorm)
	}
	copy(w.b.input[w.all*width:], w.d)
}

// normalise writes RMSNorm of each row of w.x to dst, and the InverseRMS of each
// row to f.
func (w *backpropThread) normalise(dst, f, gain []float32) {
	width := w.config.Width
	for i := range f {
		x := w.x[i*width : (i+1)*width]
		f[i] = w.kernels.InverseRMS(x, w.config.NormEpsilon)
		w.kernels.ScaleBy(dst[i*width:(i+1)*width], x, gain, f[i])
	}
}

// normaliseBack adds the gradient of x to w.d, where d is the gradient of
// RMSNorm of x. share receives each row's share of the gradient of the gain.
func (w *backpropThread) normaliseBack(share, d, x, f, gain []float32) {
	width := w.config.Width
	for i := range f {
		a, b := i*width, (i+1)*width
		w.kernels.NormBackward(w.d[a:b], share[a:b], d[a:b], x[a:b], gain, f[i])
	}
}

// rotate applies the rotary positions to all heads of q and k. Positions count
// from the start of each document.
func (w *backpropThread) rotate(q, k []float32, backward bool) {
	size := w.config.HeadSize
	for d := range w.seq.documents {
		for i := d.start; i < d.end; i++ {
			for h := range w.config.Heads {
				at := (i*w.config.Heads + h) * size
				w.b.model.rotate(w.kernels, q[at:at+size], i-d.start, backward)
				w.b.model.rotate(w.kernels, k[at:at+size], i-d.start, backward)
			}
		}
	}
}
