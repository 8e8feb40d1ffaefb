// Package interval is sets of shard numbers, kept as sorted disjoint ranges.
//
// A run's done set and dispatched chunks are nearly contiguous, so a few
// ranges describe millions of shards. Sets are values of pure data; they are
// not safe for concurrent use and never hold negative numbers.
package interval

import (
	"encoding/json"
	"fmt"
	"math"
	"sort"
)

// Range is the half-open range [Lo, Hi).
type Range struct{ Lo, Hi int }

// Len returns how many numbers the range holds.
func (r Range) Len() int { return r.Hi - r.Lo }

// Set is a set of numbers. The zero value is empty.
type Set struct{ rs []Range }

// Of returns the set of the ranges.
func Of(rs ...Range) Set {
	var s Set
	for _, r := range rs {
		s.AddRange(r)
	}
	return s
}

// Add puts n in and reports whether it was new.
func (s *Set) Add(n int) bool {
	if s.Has(n) {
		return false
	}
	s.AddRange(Range{n, n + 1})
	return true
}

// AddRange puts all of r in.
func (s *Set) AddRange(r Range) {
	if r.Lo >= r.Hi {
		return
	}
	// The ranges that touch r are rs[i:j]; they become one with it.
	i := sort.Search(len(s.rs), func(k int) bool { return s.rs[k].Hi >= r.Lo })
	j := sort.Search(len(s.rs), func(k int) bool { return s.rs[k].Lo > r.Hi })
	if i < j {
		r.Lo = min(r.Lo, s.rs[i].Lo)
		r.Hi = max(r.Hi, s.rs[j-1].Hi)
	}
	s.rs = append(s.rs[:i], append([]Range{r}, s.rs[j:]...)...)
}

// Has reports whether n is in.
func (s Set) Has(n int) bool {
	i := sort.Search(len(s.rs), func(k int) bool { return s.rs[k].Hi > n })
	return i < len(s.rs) && s.rs[i].Lo <= n
}

// Gap returns the smallest number ≥ from that is not in.
func (s Set) Gap(from int) int {
	i := sort.Search(len(s.rs), func(k int) bool { return s.rs[k].Hi > from })
	if i < len(s.rs) && s.rs[i].Lo <= from {
		return s.rs[i].Hi
	}
	return from
}

// Missing returns the parts of r that are not in, in order.
func (s Set) Missing(r Range) []Range {
	var out []Range
	for lo := r.Lo; lo < r.Hi; {
		lo = s.Gap(lo)
		if lo >= r.Hi {
			break
		}
		i := sort.Search(len(s.rs), func(k int) bool { return s.rs[k].Lo > lo })
		hi := r.Hi
		if i < len(s.rs) {
			hi = min(hi, s.rs[i].Lo)
		}
		out = append(out, Range{lo, hi})
		lo = hi
	}
	return out
}

// Len returns how many numbers are in.
func (s Set) Len() int {
	n := 0
	for _, r := range s.rs {
		n += r.Len()
	}
	return n
}

// Ranges returns the disjoint ranges in order. The caller must not change them.
func (s Set) Ranges() []Range { return s.rs }

// Clone returns an independent copy.
func (s Set) Clone() Set { return Set{append([]Range(nil), s.rs...)} }

// MarshalJSON writes [gap,length,gap,length,…]: how many numbers are out, then
// how many are in, and so on, from 0. A set full of holes stays short so.
func (s Set) MarshalJSON() ([]byte, error) {
	out := make([]int, 0, 2*len(s.rs))
	at := 0
	for _, r := range s.rs {
		out = append(out, r.Lo-at, r.Len())
		at = r.Hi
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Set) UnmarshalJSON(b []byte) error {
	var v []int
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	rs, err := FromGaps(v)
	*s = Set{rs}
	return err
}

// FromGaps returns the ranges that gap, length, gap, length, … describe, as in
// a Set's JSON. Only the first gap may be 0, and no length.
func FromGaps(v []int) ([]Range, error) {
	if len(v)%2 != 0 {
		return nil, fmt.Errorf("set of %d numbers: a gap without a length", len(v))
	}
	var rs []Range
	at := 0
	for i := 0; i < len(v); i += 2 {
		gap, n := v[i], v[i+1]
		if gap < 0 || gap == 0 && i > 0 || n <= 0 || gap > math.MaxInt-at || n > math.MaxInt-at-gap {
			return nil, fmt.Errorf("set with a gap of %d and a length of %d after %d", gap, n, at)
		}
		rs = append(rs, Range{at + gap, at + gap + n})
		at += gap + n
	}
	return rs, nil
}
