package model

import "rollout/gpuworker/tinylm/kernel"

// packed is a copy of the matrices in the layout of the forward pass.
type packed struct {
	layers []packedLayer
	head   kernel.Matrix
}

type packedLayer struct {
	q, k, v, o, gate, up, down kernel.Matrix
}

func newPacked(c Config, cut cut) *packed {
	attention := c.Heads * c.HeadSize
	own, width, hidden := cut.attention(c), cut.columns(c.Width), cut.columns(c.Hidden)
	p := &packed{layers: make([]packedLayer, c.Layers), head: kernel.NewMatrix(c.Width, cut.columns(c.Vocab).len())}
	for i := range p.layers {
		p.layers[i] = packedLayer{
			q: kernel.NewMatrix(c.Width, own.len()), k: kernel.NewMatrix(c.Width, own.len()),
			v: kernel.NewMatrix(c.Width, own.len()), o: kernel.NewMatrix(attention, width.len()),
			gate: kernel.NewMatrix(c.Width, hidden.len()), up: kernel.NewMatrix(c.Width, hidden.len()),
			down: kernel.NewMatrix(c.Hidden, width.len()),
		}
	}
	return p
}

// fill copies the current parameters of m, as far as they belong to the cut.
func (p *packed) fill(m *Model, cut cut, threads int) {
	c := m.config
	attention := c.Heads * c.HeadSize
	pack := func(dst kernel.Matrix, w []float32, outs span, ins int) {
		m.kernels.PackTransposed(dst, w[outs.start*ins:], outs.len(), ins, ins)
	}
	own, width, hidden := cut.attention(c), cut.columns(c.Width), cut.columns(c.Hidden)
	kernel.Parallel(threads, c.Layers+1, func(_, i int) {
		if i == c.Layers {
			pack(p.head, m.embed, cut.columns(c.Vocab), c.Width)
			return
		}
		l, t := m.layers[i], p.layers[i]
		pack(t.q, l.q, own, c.Width)
		pack(t.k, l.k, own, c.Width)
		pack(t.v, l.v, own, c.Width)
		pack(t.o, l.o, width, attention)
		pack(t.gate, l.gate, hidden, c.Width)
		pack(t.up, l.up, hidden, c.Width)
		pack(t.down, l.down, width, c.Hidden)
	})
}

// packedBackward is a copy of the matrices in the layout of the backward pass,
// where they turn gradients of outputs into gradients of inputs.
type packedBackward struct {
	layers []packedLayer
	head   kernel.Matrix
}

func newPackedBackward(c Config) *packedBackward {
	attention := c.Heads * c.HeadSize
	p := &packedBackward{layers: make([]packedLayer, c.Layers), head: kernel.NewMatrix(c.Vocab, c.Width)}
	for i := range p.layers {
		p.layers[i] = packedLayer{
			q: kernel.NewMatrix(attention, c.Width), k: kernel.NewMatrix(attention, c.Width),
			v: kernel.NewMatrix(attention, c.Width), o: kernel.NewMatrix(c.Width, attention),
			gate: kernel.NewMatrix(c.Hidden, c.Width), up: kernel.NewMatrix(c.Hidden, c.Width),
			down: kernel.NewMatrix(c.Width, c.Hidden),
		}
	}
	return p
}

// fill copies the current parameters of m.
func (p *packedBackward) fill(m *Model, threads int) {
	c := m.config
	attention := c.Heads * c.HeadSize
	kernel.Parallel(threads, c.Layers+1, func(_, i int) {
		if i == c.Layers {
			m.kernels.PackRows(p.head, m.embed, c.Vocab, c.Width, c.Width)
			return
		}
		l, t := m.layers[i], p.layers[i]
		m.kernels.PackRows(t.q, l.q, attention, c.Width, c.Width)
		m.kernels.PackRows(t.k, l.k, attention, c.Width, c.Width)
		m.kernels.PackRows(t.v, l.v, attention, c.Width, c.Width)
		m.kernels.PackRows(t.o, l.o, c.Width, attention, attention)
		m.kernels.PackRows(t.gate, l.gate, c.Hidden, c.Width, c.Width)
		m.kernels.PackRows(t.up, l.up, c.Hidden, c.Width, c.Width)
		m.kernels.PackRows(t.down, l.down, c.Width, c.Hidden, c.Hidden)
	})
}
