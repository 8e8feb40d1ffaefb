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

// repeatsAtOnce bounds the repeats in memory. A range with more, which is full of
// tiny lines, is compared again for the others.
const repeatsAtOnce = 1 << 19

// errTooManyRepeats says that several ranges have more than repeatsAtOnce
// repeats together: fewer ranges must be compared at once.
var errTooManyRepeats = errors.New("the ranges have too many repeats to be compared at once")

// repeats are the repeats of some consecutive ranges. Those of the items
// [lo, hi) are in memory.
type repeats struct {
	from   int   // the first of the ranges
	counts []int // of each range, for all its items
	lo, hi uint64
	kept   []repeat
}

// repeat is an item and the first item with the same hash.
type repeat struct {
	at    uint64
	first shardtable.Place
}

// at is a number that orders items by range, then by number.
func at(rng, item uint32) uint64 { return uint64(rng)<<32 | uint64(item) }

func newRepeats(from, ranges int) *repeats {
	return &repeats{from: from, counts: make([]int, ranges), hi: math.MaxUint64}
}

// add adds a repeat. Repeats come in any order.
func (r *repeats) add(item, first shardtable.Place) error {
	k := int(item.Range) - r.from
	if k < 0 || k >= len(r.counts) {
		return fault.New(fault.Corrupt, "a list of the ranges %d to %d has an item of range %d",
			r.from, r.from+len(r.counts), item.Range)
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
	const keep = repeatsAtOnce / 4 * 3 // dropping a quarter keeps sorts rare
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

// of yields the repeats of a range that are in memory, in order. Call sort first.
func (r *repeats) of(rng int) iter.Seq[shardtable.Repeat] {
	return func(yield func(shardtable.Repeat) bool) {
		compare := func(e repeat, want uint64) int { return cmp.Compare(e.at, want) }
		from, _ := slices.BinarySearchFunc(r.kept, at(uint32(rng), 0), compare)
		for _, e := range r.kept[from:] {
			if e.at>>32 != uint64(rng) || !yield(shardtable.Repeat{Item: uint32(e.at), First: e.first}) {
				return
			}
		}
	}
}

// more reports whether repeats may follow those in memory.
func (r *repeats) more() bool { return r.hi != math.MaxUint64 }

// nextWindow returns an empty set for the repeats that follow those in memory.
func (r *repeats) nextWindow() *repeats {
	next := newRepeats(r.from, len(r.counts))
	next.lo = r.hi
	return next
}

// items is a set of items of some consecutive ranges.
type items struct {
	from int
	sets [][]uint64 // of each range
}

func (s *items) addRange(n uint64) { s.sets = append(s.sets, make([]uint64, (n+63)/64)) }

// bit returns the item's bit; nil for an item of another range.
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
