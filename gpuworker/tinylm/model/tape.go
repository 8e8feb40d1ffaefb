package model

// tape holds what accumulate needs to compute the gradients of the weights from
// one group of sequences: the inputs of each matrix and the gradients of its
// outputs, one row for each token.
type tape struct {
	layers []tapeLayer
	// The rows that reach the head: final normalised states, gradients of the
	// logits, and shares of the gradient of the final gain.
	final, logits, finalShare []float32
}

type tapeLayer struct {
	input, query, key, value []float32 // normalised input of attention [Width]; gradients of q, k, v
	attended, mid            []float32 // input of o; gradient of its output [Width]
	mlpInput, gate, up       []float32 // normalised input of the MLP [Width]; gradients of gate and up [Hidden]
	hidden, output           []float32 // input of down [Hidden]; gradient of its output [Width]
	attentionShare, mlpShare []float32 // shares of the gradients of the gains [Width]
}

// resize sizes the tape for rows tokens, of which heads reach the head.
func (t *tape) resize(c Config, rows, heads int, backward bool) {
	attention := c.Heads * c.HeadSize
	if t.layers == nil {
		t.layers = make([]tapeLayer, c.Layers)
	}
	resize(&t.final, heads*c.Width)
	if !backward {
		return
	}
	resize(&t.logits, heads*c.Vocab)
	resize(&t.finalShare, heads*c.Width)
	for i := range t.layers {
		l := &t.layers[i]
		for _, x := range []*[]float32{&l.input, &l.mid, &l.mlpInput, &l.output, &l.attentionShare, &l.mlpShare} {
			resize(x, rows*c.Width)
		}
		for _, x := range []*[]float32{&l.query, &l.key, &l.value, &l.attended} {
			resize(x, rows*attention)
		}
		for _, x := range []*[]float32{&l.gate, &l.up, &l.hidden} {
			resize(x, rows*c.Hidden)
		}
	}
}

// resize sets the length of a buffer. Its contents are undefined afterwards.
func resize(x *[]float32, n int) {
	if cap(*x) < n {
		*x = make([]float32, n)
	}
	*x = (*x)[:n]
}
