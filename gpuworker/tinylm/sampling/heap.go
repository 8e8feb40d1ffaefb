package sampling

// likeliest hands out ids by logit, the greatest first and of equal ones the
// lowest id. It is a binary heap in ids; what was handed out stands behind it,
// the first at the end.
type likeliest struct {
	logits []float32
	ids    []int32
	n      int // of ids, with those that were handed out
}

func (h *likeliest) before(a, b int32) bool {
	if h.logits[a] != h.logits[b] {
		return h.logits[a] > h.logits[b]
	}
	return a < b
}

// order makes a heap of the ids that are there.
func (h *likeliest) order() {
	h.n = len(h.ids)
	for i := len(h.ids)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

// restore takes back all that was handed out. It stands behind the heap in
// rising order, so that it has to find its places anew.
func (h *likeliest) restore() {
	h.ids = h.ids[:h.n]
	h.order()
}

// pop hands out the next id.
func (h *likeliest) pop() int32 {
	last := len(h.ids) - 1
	h.ids[0], h.ids[last] = h.ids[last], h.ids[0]
	id := h.ids[last]
	h.ids = h.ids[:last]
	h.sink(0)
	return id
}

// popped is the i-th id that was handed out.
func (h *likeliest) popped(i int) int32 { return h.ids[:h.n][h.n-1-i] }

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
