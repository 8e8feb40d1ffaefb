package estimate

import (
	"bytes"
	"container/heap"
	"encoding/binary"

	"rollout/shared/core/identity"
)

// MaxSample is the largest sample.
const MaxSample = 100_000

// Sampler draws a simple random sample of items that come one after the other, whose number
// is not known before. It keeps the items with the smallest hashes of seed and ordinal, so
// that its memory depends on the size of the sample alone, and that a smaller sample of the
// same seed is a part of a larger one. It is not safe for concurrent use.
type Sampler struct {
	size   int
	seed   uint64
	offers uint64
	hasher *identity.Hasher
	chosen drawn
}

// NewSampler returns a Sampler of size items.
func NewSampler(size int, seed uint64) *Sampler {
	return &Sampler{size: size, seed: seed, hasher: identity.NewHasher()}
}

// Offer offers the next item, whose ordinal is the number of Offers before. If taken is
// true, the item is in the sample of the items so far, and the item with the ordinal
// dropped is not any more, if there is one (replaced).
func (s *Sampler) Offer() (dropped uint64, replaced, taken bool) {
	ordinal := s.offers
	s.offers++
	d := draw{rank: s.rank(ordinal), ordinal: ordinal}
	switch {
	case len(s.chosen) < s.size:
		heap.Push(&s.chosen, d)
		return 0, false, true
	case s.size == 0 || s.chosen[0].before(d):
		return 0, false, false
	}
	dropped = s.chosen[0].ordinal
	s.chosen[0] = d
	heap.Fix(&s.chosen, 0)
	return dropped, true, true
}

// rank is the hash by which items are chosen: blake3 of a label, the seed and the ordinal.
func (s *Sampler) rank(ordinal uint64) identity.ContentID {
	b := []byte("rollout sample")
	b = binary.LittleEndian.AppendUint64(b, s.seed)
	b = binary.LittleEndian.AppendUint64(b, ordinal)
	s.hasher.Reset()
	s.hasher.Write(b)
	return s.hasher.Sum()
}

// draw is an item of the sample.
type draw struct {
	rank    identity.ContentID
	ordinal uint64
}

func (d draw) before(other draw) bool { return bytes.Compare(d.rank[:], other.rank[:]) < 0 }

// drawn is a heap whose first item is the first to be dropped.
type drawn []draw

func (h drawn) Len() int           { return len(h) }
func (h drawn) Less(i, j int) bool { return h[j].before(h[i]) }
func (h drawn) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *drawn) Push(x any)        { *h = append(*h, x.(draw)) }
func (h *drawn) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
