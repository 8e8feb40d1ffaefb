package model

import "rollout/gpuworker/tinylm/kernel"

// packed is a copy of the matrices as the forward pass reads them.
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

// fill copies the parameters of m as they are now.
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
