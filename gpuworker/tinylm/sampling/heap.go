package sampling

// likeliest returns token ids in order of their logits, the greatest first; of
// equal logits, the lowest id comes first. ids is a binary heap. The popped ids
// follow it in the same array, the first popped at the end.
type likeliest struct {
	logits []float32
	ids    []int32
	n      int // number of ids, including popped ones
}

// before reports whether a comes before b.
func (h *likeliest) before(a, b int32) bool {
	if h.logits[a] != h.logits[b] {
		return h.logits[a] > h.logits[b]
	}
	return a < b
}

// order makes ids a heap.
func (h *likeliest) order() {
	h.n = len(h.ids)
	for i := len(h.ids)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

// restore puts all popped ids back into the heap.
func (h *likeliest) restore() {
	h.ids = h.ids[:h.n]
	h.order()
}

// pop removes and returns the next id.
func (h *likeliest) pop() int32 {
	last := len(h.ids) - 1
	h.ids[0], h.ids[last] = h.ids[last], h.ids[0]
	id := h.ids[last]
	h.ids = h.ids[:last]
	h.sink(0)
	return id
}

// popped returns the i-th popped id, counted from 0.
func (h *likeliest) popped(i int) int32 { return h.ids[:h.n][h.n-1-i] }

// sink moves the id at i down to its place in the heap.
func (h *likeliest) sink(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.ids) {
			return
		}
		if child+1 < len(h.ids) && h.before(h.ids[child+1], h.ids[child]) {
			child++
		}
		if !h.before(h.ids[child], h.ids[i]) {
			return
		}
		h.ids[i], h.ids[child] = h.ids[child], h.ids[i]
		i = child
	}
}
