package tokenizer

import "math/bits"

// ranks maps the two tokens of each merge to its rank. It is a hash table with
// open addressing, at most a quarter full. Its look-ups dominate the time of
// Encode, which a Go map makes three times as long.
type ranks struct {
	slots []rankSlot
	shift int
}

type rankSlot struct {
	pair uint64 // Merge.key, or freeSlot
	rank int32
}

const freeSlot = ^uint64(0)

func newRanks(merges []Merge) ranks {
	log := bits.Len(uint(4*len(merges)) | 15)
	r := ranks{slots: make([]rankSlot, 1<<log), shift: 64 - log}
	for i := range r.slots {
		r.slots[i].pair = freeSlot
	}
	for i, m := range merges {
		key := m.key()
		at := r.home(key)
		for r.slots[at].pair != freeSlot {
			at = (at + 1) & (len(r.slots) - 1)
		}
		r.slots[at] = rankSlot{key, int32(i)}
	}
	return r
}

// of returns the rank of the merge of two tokens, or none if they have no merge.
func (r *ranks) of(left, right int32) int32 {
	key := Merge{left, right}.key()
	for at := r.home(key); ; at = (at + 1) & (len(r.slots) - 1) {
		switch s := &r.slots[at]; s.pair {
		case key:
			return s.rank
		case freeSlot:
			return none
		}
	}
}

// key returns both ids in one number: the left id in the upper half.
func (m Merge) key() uint64 { return uint64(uint32(m.Left))<<32 | uint64(uint32(m.Right)) }

// home returns the first slot to search for a key (Fibonacci hashing).
func (r *ranks) home(key uint64) int { return int((key ^ key>>31) * 0x9e3779b97f4a7c15 >> r.shift) }
