package model

import "rollout/gpuworker/tinylm/kernel"

// losses writes -ln p of each counted target to the Backprop's losses. With a
// backward pass, it also writes the gradients of the logits to the tape, and the
// gradient of the last layer's result to w.d.
func (w *backpropThread) losses(scale float32) {
	c, k, b := w.config, w.kernels, w.b
	width := c.Width
	counted := w.seq.counted()
	resize(&w.inverse, counted)
	final := b.tape.final[w.head*width : (w.head+counted)*width]
	h := 0
	for i, t := range w.seq.Targets {
		if t < 0 {
			continue
		}
		x := w.x[i*width : (i+1)*width]
		w.inverse[h] = k.InverseRMS(x, c.NormEpsilon)
		k.ScaleBy(final[h*width:(h+1)*width], x, b.model.norm, w.inverse[h])
		h++
	}
	out := w.out
	if w.backward {
		out = b.tape.logits[w.head*c.Vocab : (w.head+counted)*c.Vocab]
	} else if out == nil {
		w.out = make([]float32, blockRows*c.Vocab)
		out = w.out
	}
	at := 0
	h = 0
	for i := 0; i < counted; i += blockRows {
		n := min(blockRows, counted-i)
		block := out
		if w.backward {
			block = out[i*c.Vocab:]
		}
		k.Product(block, c.Vocab, rows(final[i*width:], width), b.forward.head, n, width, c.Vocab, false)
		for r := range n {
			for w.seq.Targets[at] < 0 {
				at++
			}
			b.losses[w.head+h] = crossEntropy(k, block[r*c.Vocab:(r+1)*c.Vocab], int(w.seq.Targets[at]), scale)
			at, h = at+1, h+1
		}
	}
	if !w.backward {
		return
	}
	clear(w.d)
	k.Product(w.n, width, rows(out, c.Vocab), b.back.head, counted, c.Vocab, width, false)
	shares := b.tape.finalShare[w.head*width:]
	h = 0
	for i, t := range w.seq.Targets {
		if t < 0 {
			continue
		}
		from, to := i*width, (i+1)*width
		share, d := shares[h*width:(h+1)*width], w.n[h*width:(h+1)*width]
		k.NormBackward(w.d[from:to], share, d, w.x[from:to], b.model.norm, w.inverse[h])
		h++
	}
}

// crossEntropy returns -ln softmax(logits)[target]. It replaces the logits by
// the gradient of this loss times scale.
func crossEntropy(k kernel.Set, logits []float32, target int, scale float32) float64 {
	highest := k.Max(logits)
	chosen := float64(logits[target]) - float64(highest)
	k.Exps(logits, logits, highest)
	sum := k.Sum(logits)
	k.Scale(logits, scale/sum)
	logits[target] -= scale
	return kernel.Log64(float64(sum)) - chosen
}
