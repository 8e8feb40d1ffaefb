package model

import (
	"slices"

	"rollout/gpuworker/tinylm/kernel"
)

// Session is the state of one sequence: the cached keys and values of its
// positions. It belongs to one model, and one goroutine may use it at a time.
type Session struct {
	model  *Model
	length int
	// keys and values have an element for each layer and head. Keys lie in
	// blocks of kernel.Lanes positions, [block][HeadSize][Lanes]; values lie as
	// [position][padded HeadSize]. In both layouts the output elements of
	// attention's sums are adjacent.
	keys, values [][]float32
}

// NewSession returns an empty session.
func (m *Model) NewSession() *Session {
	n := m.config.Layers * m.config.Heads
	return &Session{model: m, keys: make([][]float32, n), values: make([][]float32, n)}
}

// Len returns the number of cached positions.
func (s *Session) Len() int { return s.length }

// Truncate removes the positions from n on.
func (s *Session) Truncate(n int) {
	s.length = min(s.length, max(n, 0))
}

// Fork returns an independent copy of the session.
func (s *Session) Fork() *Session {
	f := *s
	f.keys, f.values = slices.Clone(s.keys), slices.Clone(s.values)
	for i := range f.keys {
		f.keys[i], f.values[i] = slices.Clone(s.keys[i]), slices.Clone(s.values[i])
	}
	return &f
}

// put stores the key and the value of one head at a position.
func (s *Session) put(head, position int, key, value []float32) {
	size := len(key)
	at := position / kernel.Lanes * size * kernel.Lanes
	keys := grown(&s.keys[head], at+size*kernel.Lanes)[at+position%kernel.Lanes:]
	for i, v := range key {
		keys[i*kernel.Lanes] = v
	}
	stride := kernel.Padded(size)
	values := grown(&s.values[head], (position+1)*stride)
	copy(values[position*stride:], value)
}

// grown extends a slice with zeros to a length of at least n.
func grown(x *[]float32, n int) []float32 {
	if len(*x) < n {
		*x = append(*x, make([]float32, n-len(*x))...)
	}
	return *x
}
