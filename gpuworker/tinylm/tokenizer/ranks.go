package tokenizer

import "math/bits"

// ranks is the ranks of merges by their parts: a hash table with open
// addressing, at most a quarter full. Looking at pairs is nearly all that
// encoding does, and a map took three times as long.
type ranks struct {
	slots []rankSlot
	shift int
}

type rankSlot struct {
	pair uint64 // left, right; both all ones if the slot is free
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

// of returns the rank of joining two tokens, or none.
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

func (m Merge) key() uint64 { return uint64(uint32(m.Left))<<32 | uint64(uint32(m.Right)) }

// home is where a key's slot is looked for first (Fibonacci hashing).
func (r *ranks) home(key uint64) int { return int((key ^ key>>31) * 0x9e3779b97f4a7c15 >> r.shift) }
