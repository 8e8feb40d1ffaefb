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

func newPacked(c Config) *packed {
	attention := c.Heads * c.HeadSize
	p := &packed{layers: make([]packedLayer, c.Layers), head: kernel.NewMatrix(c.Width, c.Vocab)}
	for i := range p.layers {
		p.layers[i] = packedLayer{
			q: kernel.NewMatrix(c.Width, attention), k: kernel.NewMatrix(c.Width, attention),
			v: kernel.NewMatrix(c.Width, attention), o: kernel.NewMatrix(attention, c.Width),
			gate: kernel.NewMatrix(c.Width, c.Hidden), up: kernel.NewMatrix(c.Width, c.Hidden),
			down: kernel.NewMatrix(c.Hidden, c.Width),
		}
	}
	return p
}

// fill copies the current parameters of m.
func (p *packed) fill(m *Model, threads int) {
	c := m.config
	attention := c.Heads * c.HeadSize
	kernel.Parallel(threads, c.Layers+1, func(_, i int) {
		if i == c.Layers {
			m.kernels.PackTransposed(p.head, m.embed, c.Vocab, c.Width, c.Width)
			return
		}
		l, t := m.layers[i], p.layers[i]
		m.kernels.PackTransposed(t.q, l.q, attention, c.Width, c.Width)
		m.kernels.PackTransposed(t.k, l.k, attention, c.Width, c.Width)
		m.kernels.PackTransposed(t.v, l.v, attention, c.Width, c.Width)
		m.kernels.PackTransposed(t.o, l.o, c.Width, attention, attention)
		m.kernels.PackTransposed(t.gate, l.gate, c.Hidden, c.Width, c.Width)
		m.kernels.PackTransposed(t.up, l.up, c.Hidden, c.Width, c.Width)
		m.kernels.PackTransposed(t.down, l.down, c.Width, c.Hidden, c.Hidden)
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
