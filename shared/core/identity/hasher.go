package identity

import (
	"encoding/binary"
	"math/bits"
	"rollout/shared/blake3pair"
	"sync"

	"lukechampine.com/blake3/guts"
)

// groupSize is how many bytes the library compresses at once with vectors: 16
// chunks.
const groupSize = guts.MaxSIMD * guts.ChunkSize

// Hasher computes many content ids without allocating. It is not safe for
// concurrent use.
//
// It builds blake3's tree from the library's compression functions, and uses
// package blake3pair for short values. The library's own hasher starts a goroutine
// for each subtree, which for writes of up to 100 KiB costs as much as the hashing
// itself, and it hashes small writes without vectors.
type Hasher struct {
	group [groupSize]byte // bytes that are not compressed yet: the last group ends differently
	n     int             // how many bytes of group are used
	// groups counts the compressed groups. Its bits say which levels of the stack
	// hold the root of a complete subtree: level i is one of 2^i groups.
	groups uint64
	stack  [64][8]uint32
	short  blake3pair.Hasher
}

// NewHasher returns a Hasher.
func NewHasher() *Hasher { return &Hasher{} }

// Reset discards what was written, to start a new value.
func (h *Hasher) Reset() { h.n, h.groups = 0, 0 }

// Write adds bytes; it never fails.
func (h *Hasher) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if h.n == groupSize {
			h.compress(&h.group)
			h.n = 0
		}
		if h.n == 0 {
			for len(p) > groupSize {
				h.compress((*[groupSize]byte)(p))
				p = p[groupSize:]
			}
		}
		taken := copy(h.group[h.n:], p)
		h.n += taken
		p = p[taken:]
	}
	return n, nil
}

// WriteString adds the bytes of s; it never fails.
func (h *Hasher) WriteString(s string) (int, error) {
	n := len(s)
	for len(s) > 0 {
		if h.n == groupSize {
			h.compress(&h.group)
			h.n = 0
		}
		taken := copy(h.group[h.n:], s)
		h.n += taken
		s = s[taken:]
	}
	return n, nil
}

// compress compresses a full group that is not the last, and joins the subtrees
// that it completes.
func (h *Hasher) compress(group *[groupSize]byte) {
	cv := guts.ChainingValue(guts.CompressBuffer(group, groupSize, &guts.IV, h.groups*guts.MaxSIMD, 0))
	level := 0
	for ; h.groups>>level&1 == 1; level++ {
		cv = guts.ChainingValue(guts.ParentNode(h.stack[level], cv, &guts.IV, 0))
	}
	h.stack[level] = cv
	h.groups++
}

// Sum returns the id of what was written since Reset.
func (h *Hasher) Sum() ContentID {
	if h.groups == 0 && h.n <= blake3pair.MaxLen && blake3pair.Available() {
		return h.sumShort()
	}
	return h.sumGroups()
}

// sumShort is Sum of a value of at most blake3pair.MaxLen bytes.
func (h *Hasher) sumShort() ContentID {
	return h.short.Sum((*[blake3pair.MaxLen]byte)(h.group[:]), h.n)
}

// sumGroups is Sum of a value of any length.
func (h *Hasher) sumGroups() ContentID {
	root := guts.CompressBuffer(&h.group, h.n, &guts.IV, h.groups*guts.MaxSIMD, 0)
	for left := h.groups; left != 0; left &= left - 1 {
		root = guts.ParentNode(h.stack[bits.TrailingZeros64(left)], guts.ChainingValue(root), &guts.IV, 0)
	}
	root.Flags |= guts.FlagRoot
	out := guts.WordsToBytes(guts.CompressNode(root))
	return ContentID(out[:len(ContentID{})])
}

// Content returns the id of b.
func (h *Hasher) Content(b []byte) ContentID {
	h.Reset()
	h.Write(b)
	return h.Sum()
}

func (h *Hasher) uint64(v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	h.Write(b[:])
}

// hashers are for the functions that compute one id.
var hashers = sync.Pool{New: func() any { return NewHasher() }}
