package model

import (
	"math"

	"rollout/gpuworker/tinylm/kernel"
	"rollout/shared/fault"
)

// blockRows is the number of positions that go through the layers together. It
// is large enough that each loaded weight is used often, and small enough that
// the scratch memory stays small.
const blockRows = 48

// row is one position of a forward pass.
type row struct {
	session    *Session
	position   int
	token      int32
	wantLogits bool
}

// pass is the forward pass of one thread, with its scratch memory.
type pass struct {
	model   *Model
	weights *packed
	cut     cut
	kernels kernel.Set
	scale   float32 // of attention scores: 1/√HeadSize
	rows    []row

	x, n, q, k, v, o, gate, up []float32 // [blockRows, …]
	scores                     []float32 // [Context]
	out                        []float32 // [blockRows, Vocab]
	block                      []float32 // own columns, for the exchange with other parts
}

func newPass(m *Model, weights *packed, cut cut) *pass {
	c := m.config
	attention := c.Heads * c.HeadSize
	room := func(n int) []float32 { return make([]float32, blockRows*n) }
	return &pass{
		model: m, weights: weights, cut: cut, kernels: m.kernels,
		scale: float32(1 / math.Sqrt(float64(c.HeadSize))),
		x:     room(c.Width), n: room(c.Width), q: room(attention), k: room(attention), v: room(attention),
		o: room(max(attention, c.Width)), gate: room(c.Hidden), up: room(c.Hidden),
		scores: make([]float32, c.Context), out: room(c.Vocab),
	}
}

// run runs the slots through the model, a block of positions at a time, and
// copies the logits after each slot's last token to logits[i] unless that is nil.
func (p *pass) run(slots []Slot, logits [][]float32) error {
	var outs [][]float32
	flush := func() error {
		err := p.forward()
		if err != nil {
			return err
		}
		err = p.logits(func(i int, row []float32) { copy(outs[i], row) })
		p.rows, outs = p.rows[:0], outs[:0]
		return err
	}
	p.rows = p.rows[:0]
	for i, s := range slots {
		start := s.Session.length
		for j, t := range s.Tokens {
			want := j == len(s.Tokens)-1 && logits[i] != nil
			p.rows = append(p.rows, row{session: s.Session, position: start + j, token: t, wantLogits: want})
			if want {
				outs = append(outs, logits[i])
			}
			if len(p.rows) == blockRows {
				if err := flush(); err != nil {
					return err
				}
			}
		}
	}
	if len(p.rows) == 0 {
		return nil
	}
	return flush()
}

// forward runs p.rows through all layers, leaves the resulting states in p.x, and
// adds the rows' keys and values to their sessions. Only an exchange can fail.
func (p *pass) forward() error {
	c, k, m := p.model.config, p.kernels, p.model
	rowsN, w, attention := len(p.rows), c.Width, c.Heads*c.HeadSize
	heads, own := p.cut.columns(c.Heads), p.cut.attention(c)
	width, hidden := p.cut.columns(w), p.cut.columns(c.Hidden)
	for i, r := range p.rows {
		copy(p.x[i*w:(i+1)*w], m.embed[int(r.token)*w:])
	}
	for l := range m.layers {
		par, wt := m.layers[l], p.weights.layers[l]
		p.normalise(par.attentionNorm)
		k.Product(p.q[own.start:], attention, rows(p.n, w), wt.q, rowsN, w, own.len(), false)
		k.Product(p.k[own.start:], attention, rows(p.n, w), wt.k, rowsN, w, own.len(), false)
		k.Product(p.v[own.start:], attention, rows(p.n, w), wt.v, rowsN, w, own.len(), false)
		for i, r := range p.rows {
			for h := heads.start; h < heads.end; h++ {
				head := func(x []float32) []float32 {
					at := i*attention + h*c.HeadSize
					return x[at : at+c.HeadSize]
				}
				m.rotate(k, head(p.q), r.position, false)
				m.rotate(k, head(p.k), r.position, false)
				r.session.put(l*c.Heads+h, r.position, head(p.k), head(p.v))
				p.attend(r.session, l*c.Heads+h, r.position+1, head(p.o), head(p.q))
			}
			r.session.length = max(r.session.length, r.position+1)
		}
		if err := p.gather(p.o, attention, c.HeadSize, rowsN); err != nil {
			return err
		}
		k.Product(p.n[width.start:], w, rows(p.o, attention), wt.o, rowsN, attention, width.len(), false)
		if err := p.gather(p.n, w, 1, rowsN); err != nil {
			return err
		}
		k.Add(p.x[:rowsN*w], p.n[:rowsN*w])
		p.normalise(par.mlpNorm)
		gate, up := p.gate[hidden.start:], p.up[hidden.start:]
		k.Product(gate, c.Hidden, rows(p.n, w), wt.gate, rowsN, w, hidden.len(), false)
		k.Product(up, c.Hidden, rows(p.n, w), wt.up, rowsN, w, hidden.len(), false)
		for i := range rowsN {
			at := i * c.Hidden
			k.SwiGLU(gate[at:at+hidden.len()], gate[at:at+hidden.len()], up[at:at+hidden.len()])
		}
		if err := p.gather(p.gate, c.Hidden, 1, rowsN); err != nil {
			return err
		}
		k.Product(p.n[width.start:], w, rows(p.gate, c.Hidden), wt.down, rowsN, c.Hidden, width.len(), false)
		if err := p.gather(p.n, w, 1, rowsN); err != nil {
			return err
		}
		k.Add(p.x[:rowsN*w], p.n[:rowsN*w])
	}
	return nil
}

// attend writes softmax(query·keys·scale)·values to out, over the first n
// positions of one head of the session.
func (p *pass) attend(s *Session, head, n int, out, query []float32) {
	k, size, scores := p.kernels, len(query), p.scores[:n]
	keys := kernel.Matrix{Data: s.keys[head], Step: kernel.Lanes, Panel: size * kernel.Lanes}
	k.Product(scores, n, rows(query, size), keys, 1, size, n, false)
	k.Scale(scores, p.scale)
	k.Softmax(scores)
	values := kernel.RowMajor(s.values[head], kernel.Padded(size))
	k.Product(out, size, rows(scores, n), values, 1, n, size, false)
}

// normalise writes RMSNorm of each row of p.x to p.n.
func (p *pass) normalise(gain []float32) {
	w := p.model.config.Width
	for i := range p.rows {
		x := p.x[i*w : (i+1)*w]
		p.kernels.ScaleBy(p.n[i*w:(i+1)*w], x, gain, p.kernels.InverseRMS(x, p.model.config.NormEpsilon))
	}
}

// rotate applies the rotary position to one head's query or key, or undoes it if
// backward is true.
func (m *Model) rotate(k kernel.Set, x []float32, position int, backward bool) {
	half := m.config.HeadSize / 2
	k.Rotate(x, m.cos[position*half:(position+1)*half], m.sin[position*half:(position+1)*half], backward)
}

// logits calls f with the logits of each row that wants them, in order; row is
// valid only during the call.
func (p *pass) logits(f func(i int, row []float32)) error {
	c, k := p.model.config, p.kernels
	w, wanted := c.Width, 0
	for i, r := range p.rows {
		if r.wantLogits {
			x := p.x[i*w : (i+1)*w]
			k.ScaleBy(p.n[wanted*w:(wanted+1)*w], x, p.model.norm, k.InverseRMS(x, c.NormEpsilon))
			wanted++
		}
	}
	if wanted == 0 {
		return nil
	}
	own := p.cut.columns(c.Vocab)
	k.Product(p.out[own.start:], c.Vocab, rows(p.n, w), p.weights.head, wanted, w, own.len(), false)
	if err := p.gather(p.out, c.Vocab, 1, wanted); err != nil {
		return err
	}
	for i := range wanted {
		row := p.out[i*c.Vocab : (i+1)*c.Vocab]
		if at := p.model.notFinite(row); at >= 0 {
			return fault.New(fault.Corrupt, "model: the logit of token %d is %v: the weights are damaged or training diverged",
				at, row[at])
		}
		f(i, row)
	}
	return nil
}
