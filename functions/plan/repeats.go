package plan

import (
	"cmp"
	"errors"
	"iter"
	"math"
	"slices"

	"rollout/shared/fault"
	"rollout/shared/shardtable"
)

// repeatsAtOnce is how many repeats are in memory at once. A range that has
// more of them is compared again for the others: it is full of tiny lines, and
// must not take memory for that.
const repeatsAtOnce = 1 << 19

// errTooManyRepeats says that several ranges have more repeats than are in memory at
// once: fewer of them must be compared.
var errTooManyRepeats = errors.New("the ranges have too many repeats to be compared at once")

// repeats are the repeats of a few ranges, those of the items [lo, hi).
type repeats struct {
	from   int   // the first of the ranges
	counts []int // of each, and of all its items
	lo, hi uint64
	kept   []repeat
}

// repeat is an item and the first one with its hash.
type repeat struct {
	at    uint64
	first shardtable.Place
}

// at orders items by range and number.
func at(rng, item uint32) uint64 { return uint64(rng)<<32 | uint64(item) }

func newRepeats(from, ranges int) *repeats {
	return &repeats{from: from, counts: make([]int, ranges), hi: math.MaxUint64}
}

// add takes a repeat, in any order.
func (r *repeats) add(item, first shardtable.Place) error {
	k := int(item.Range) - r.from
	if k < 0 || k >= len(r.counts) {
		return fault.New(fault.Corrupt, "a list of the ranges %d to %d has an item of range %d", r.from, r.from+len(r.counts), item.Range)
	}
	r.counts[k]++
	it := repeat{at(item.Range, item.Item), first}
	if it.at < r.lo || it.at >= r.hi {
		return nil
	}
	if r.kept = append(r.kept, it); len(r.kept) < repeatsAtOnce {
		return nil
	}
	if len(r.counts) > 1 {
		return errTooManyRepeats
	}
	const keep = repeatsAtOnce / 4 * 3 // so that it is rarely sorted
	r.sort()
	r.hi = r.kept[keep].at
	r.kept = r.kept[:keep]
	return nil
}

func (r *repeats) sort() {
	slices.SortFunc(r.kept, func(a, b repeat) int { return cmp.Compare(a.at, b.at) })
}

// count is how many repeats a range has.
func (r *repeats) count(rng int) int { return r.counts[rng-r.from] }

// of are the repeats of a range that are in memory, once they are sorted.
func (r *repeats) of(rng int) iter.Seq[shardtable.Repeat] {
	return func(yield func(shardtable.Repeat) bool) {
		from, _ := slices.BinarySearchFunc(r.kept, at(uint32(rng), 0), func(e repeat, want uint64) int { return cmp.Compare(e.at, want) })
		for _, e := range r.kept[from:] {
			if e.at>>32 != uint64(rng) || !yield(shardtable.Repeat{Item: uint32(e.at), First: e.first}) {
				return
			}
		}
	}
}

// more reports whether there may be repeats behind those in memory.
func (r *repeats) more() bool { return r.hi != math.MaxUint64 }

// nextWindow is for the repeats behind those in memory.
func (r *repeats) nextWindow() *repeats {
	next := newRepeats(r.from, len(r.counts))
	next.lo = r.hi
	return next
}

// items is a set of items of a few ranges; there are no others.
type items struct {
	from int
	sets [][]uint64 // of each range
}

func (s *items) addRange(n uint64) { s.sets = append(s.sets, make([]uint64, (n+63)/64)) }

// bit is where the item's bit is; nil if the item is none of the ranges'.
func (s *items) bit(p shardtable.Place) (word *uint64, mask uint64) {
	k, w := int(p.Range)-s.from, int(p.Item/64)
	if k < 0 || k >= len(s.sets) || w >= len(s.sets[k]) {
		return nil, 0
	}
	return &s.sets[k][w], 1 << (p.Item % 64)
}

func (s *items) add(p shardtable.Place) {
	if word, mask := s.bit(p); word != nil {
		*word |= mask
	}
}

func (s *items) has(p shardtable.Place) bool {
	word, mask := s.bit(p)
	return word != nil && *word&mask != 0
}
