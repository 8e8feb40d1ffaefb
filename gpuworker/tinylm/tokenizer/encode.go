package tokenizer

// Encode appends the ids of the text to dst and returns the result. Its time is
// proportional to n·log n in the length n of each word.
func (t *Tokenizer) Encode(dst []int32, text string) []int32 {
	for text != "" {
		n := word(text)
		if n <= short {
			dst = t.encodeShort(dst, text[:n])
		} else {
			dst = t.encodeLong(dst, text[:n])
		}
		text = text[n:]
	}
	return dst
}

// short is the maximum length in bytes of words for which a search of all pairs
// after each merge is faster than a heap.
const short = 32

// encodeShort joins the pair of the lowest rank (of equal ranks, the leftmost)
// until no pair has a rank.
func (t *Tokenizer) encodeShort(dst []int32, w string) []int32 {
	var ids, ranks [short]int32 // ranks[i] is the rank of ids[i] and ids[i+1]
	n := len(w)
	for i := range n {
		ids[i] = int32(w[i])
	}
	for i := range n - 1 {
		ranks[i] = t.ranks.of(ids[i], ids[i+1])
	}
	for n > 1 {
		best, at := int32(none), 0
		for i, r := range ranks[:n-1] {
			if r != none && (best == none || r < best) {
				best, at = r, i
			}
		}
		if best == none {
			break
		}
		ids[at] = bytesOnly + best
		copy(ids[at+1:n-1], ids[at+2:n])
		copy(ranks[at+1:n-1], ranks[at+2:n])
		n--
		if at > 0 {
			ranks[at-1] = t.ranks.of(ids[at-1], ids[at])
		}
		if at < n-1 {
			ranks[at] = t.ranks.of(ids[at], ids[at+1])
		}
	}
	return append(dst, ids[:n]...)
}

// encodeLong computes the same as encodeShort, with a linked list of tokens and a
// heap of pairs.
func (t *Tokenizer) encodeLong(dst []int32, w string) []int32 {
	list := make([]link, len(w))
	for i := range list {
		list[i] = link{id: int32(w[i]), prev: int32(i) - 1, next: int32(i) + 1}
	}
	list[len(w)-1].next = none
	rank := func(at int32) int32 { // rank of the pair that now begins at at
		if at == none || list[at].id == none || list[at].next == none {
			return none
		}
		return t.ranks.of(list[at].id, list[list[at].next].id)
	}
	var todo pairs
	for i := range list {
		if r := rank(int32(i)); r != none {
			todo.push(pairAt(r, int32(i)))
		}
	}
	for len(todo) > 0 {
		p := todo.pop()
		at := p.at()
		if rank(at) != p.rank() {
			continue // one of the two tokens has been joined with another since
		}
		l := &list[at]
		right := &list[l.next]
		l.id, l.next, right.id = bytesOnly+p.rank(), right.next, none
		if l.next != none {
			list[l.next].prev = at
		}
		for _, at := range [...]int32{l.prev, at} {
			if r := rank(at); r != none {
				todo.push(pairAt(r, at))
			}
		}
	}
	for at := int32(0); at != none; at = list[at].next {
		dst = append(dst, list[at].id)
	}
	return dst
}

// link is an element of encodeLong's list. After a token was joined with the one
// before it, its id is absent (none).
type link struct{ id, prev, next int32 }

// pair is a pair of tokens that could be joined when it was pushed. The upper
// half is its rank and the lower half the position of its left token, so that
// the smallest pair is the next to join.
type pair uint64

func pairAt(rank, at int32) pair { return pair(rank)<<32 | pair(at) }
func (p pair) rank() int32       { return int32(p >> 32) }
func (p pair) at() int32         { return int32(uint32(p)) }

// pairs is a binary heap. container/heap would allocate for every element.
type pairs []pair

func (h *pairs) push(p pair) {
	*h = append(*h, p)
	s := *h
	i := len(s) - 1
	for i > 0 && s[(i-1)/2] > p {
		s[i] = s[(i-1)/2]
		i = (i - 1) / 2
	}
	s[i] = p
}

func (h *pairs) pop() pair {
	s := *h
	top, last := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	if len(s) == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= len(s) {
			break
		}
		if child+1 < len(s) && s[child+1] < s[child] {
			child++
		}
		if s[child] >= last {
			break
		}
		s[i] = s[child]
		i = child
	}
	s[i] = last
	return top
}
