package model

import (
	"slices"

	"rollout/gpuworker/tinylm/kernel"
)

// Session is one sequence: the keys and values of the positions so far. It
// belongs to one model and to one goroutine at a time.
type Session struct {
	model  *Model
	length int
	// Of each layer and head. Keys lie in blocks of kernel.Lanes positions
	// [block][HeadSize][Lanes], values as [position][padded HeadSize]: so that
	// both sums of attention have their output elements side by side.
	keys, values [][]float32
}

// NewSession starts a sequence.
func (m *Model) NewSession() *Session {
	n := m.config.Layers * m.config.Heads
	return &Session{model: m, keys: make([][]float32, n), values: make([][]float32, n)}
}

// Len is the number of positions that are in the cache.
func (s *Session) Len() int { return s.length }

// Truncate forgets the positions from n on, if there are any.
func (s *Session) Truncate(n int) {
	s.length = min(s.length, max(n, 0))
}

// Fork is a session that goes on from here by itself.
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

// grown makes a slice at least n long; what is new is zero.
func grown(x *[]float32, n int) []float32 {
	if len(*x) < n {
		*x = append(*x, make([]float32, n-len(*x))...)
	}
	return *x
}

// attend is softmax(query·keys/√HeadSize)·values over the first n positions of
// one head, into out. scores has room for n values.
func (s *Session) attend(k kernel.Set, out, query, scores []float32, head, n int, scale float32) {
	size := len(query)
	scores = scores[:n]
	keys := kernel.Matrix{Data: s.keys[head], Step: kernel.Lanes, Panel: size * kernel.Lanes}
	k.Product(scores, n, kernel.Rows{Data: query, Row: size, Col: 1}, keys, 1, size, n, false)
	k.Scale(scores, scale)
	k.Softmax(scores)
	values := kernel.RowMajor(s.values[head], kernel.Padded(size))
	k.Product(out, size, kernel.Rows{Data: scores, Row: n, Col: 1}, values, 1, n, size, false)
}
