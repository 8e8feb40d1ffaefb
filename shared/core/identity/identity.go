// Package identity derives the ids that rollout assigns: ids of contents, runs,
// models and items, seeds, keys of shard documents, and orders.
//
// It is pure: the same input object and config give the same ids, seeds and
// orders on any machine (I10, see shared/README.md). Golden values in its tests
// pin the formulas. Changing a formula is a new format version.
package identity

import (
	"encoding/binary"
	"encoding/hex"
	"sort"
)

// ContentID names bytes: blake3-256. Its text form is 64 hex digits.
type ContentID [32]byte

// String returns the 64 lower-case hex digits.
func (c ContentID) String() string { return hex.EncodeToString(c[:]) }

// ParseContentID reads 64 hex digits.
func ParseContentID(s string) (c ContentID, ok bool) {
	if len(s) != 2*len(c) {
		return c, false
	}
	_, err := hex.Decode(c[:], []byte(s))
	return c, err == nil
}

// ContentKey returns the key of an object with that content in every bucket:
// cas/<ab>/<cd>/<hex>.
func ContentKey(c ContentID) string {
	h := c.String()
	return "cas/" + h[:2] + "/" + h[2:4] + "/" + h
}

// Content returns the blake3-256 of b. It is safe for concurrent use, as are all
// functions of the package.
func Content(b []byte) ContentID {
	h := hashers.Get().(*Hasher)
	defer hashers.Put(h)
	return h.Content(b)
}

// TextContent returns Content of the bytes of s.
func TextContent(s string) ContentID {
	h := hashers.Get().(*Hasher)
	defer hashers.Put(h)
	h.Reset()
	h.WriteString(s)
	return h.Sum()
}

// Model returns the id of a model: blake3 of its URI, followed by '@' and its
// revision if one is given.
func Model(uri, revision string) ContentID {
	if revision != "" {
		uri += "@" + revision
	}
	return Content([]byte(uri))
}

// Request returns blake3(endpoint ‖ 0 ‖ request). Items of one run with the same
// value make the same request.
func Request(endpoint string, request []byte) ContentID {
	h := hashers.Get().(*Hasher)
	defer hashers.Put(h)
	h.Reset()
	h.Write([]byte(endpoint + "\x00"))
	h.Write(request)
	return h.Sum()
}

// seedMask keeps seeds within 31 bits, which every server accepts.
const seedMask = 1<<31 - 1

// Seed returns the seed of an item without a seed of its own: the first 4 bytes,
// LE, of blake3(item id ‖ decode u32 LE), masked with 2³¹−1. decode numbers the
// answers to the item, from 0.
func Seed(item ContentID, decode uint32) uint32 {
	h := hashers.Get().(*Hasher)
	defer hashers.Put(h)
	h.Reset()
	h.Write(item[:])
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], decode)
	h.Write(b[:])
	c := h.Sum()
	return binary.LittleEndian.Uint32(c[:4]) & seedMask
}

// DecodeSeed returns the seed of decode > 0 of an item with a seed of its own: the
// first 4 bytes, LE, of blake3(seed text ‖ decode u32 LE), masked with 2³¹−1.
// Decode 0 uses the item's seed as written.
func DecodeSeed(seed []byte, decode uint32) uint32 {
	b := binary.LittleEndian.AppendUint32(append([]byte(nil), seed...), decode)
	c := Content(b)
	return binary.LittleEndian.Uint32(c[:4]) & seedMask
}

// Order returns the indexes 0..n-1 sorted by blake3(seed ‖ epoch ‖ index), all u64
// LE: the same permutation on every machine.
func Order(seed, epoch uint64, n int) []int {
	type keyed struct {
		key ContentID
		i   int
	}
	ks := make([]keyed, n)
	h := NewHasher()
	for i := range ks {
		h.Reset()
		h.uint64(seed)
		h.uint64(epoch)
		h.uint64(uint64(i))
		ks[i] = keyed{h.Sum(), i}
	}
	sort.Slice(ks, func(a, b int) bool { return string(ks[a].key[:]) < string(ks[b].key[:]) })
	out := make([]int, n)
	for i, k := range ks {
		out[i] = k.i
	}
	return out
}
