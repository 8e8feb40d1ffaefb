// Package interval is sets of shard numbers, kept as sorted disjoint ranges.
//
// A run's done set and dispatched chunks are nearly contiguous, so a few
// ranges describe millions of shards. Sets are values of pure data; they are
// not safe for concurrent use and never hold negative numbers.
package interval

import (
	"encoding/json"
	"fmt"
	"sort"
)

// Range is the half-open range [Lo, Hi).
type Range struct{ Lo, Hi int }

// Len returns how many numbers the range holds.
func (r Range) Len() int { return r.Hi - r.Lo }

// MarshalJSON writes [lo,hi].
func (r Range) MarshalJSON() ([]byte, error) { return json.Marshal([2]int{r.Lo, r.Hi}) }

// UnmarshalJSON reads [lo,hi].
func (r *Range) UnmarshalJSON(b []byte) error {
	var p [2]int
	if err := json.Unmarshal(b, &p); err != nil {
		return err
	}
	if p[0] < 0 || p[1] <= p[0] {
		return fmt.Errorf("range [%d,%d] is empty or negative", p[0], p[1])
	}
	*r = Range{p[0], p[1]}
	return nil
}

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

// MarshalJSON writes [[lo,hi],…].
func (s Set) MarshalJSON() ([]byte, error) {
	if s.rs == nil {
		return []byte("[]"), nil
	}
	return json.Marshal(s.rs)
}

// UnmarshalJSON reads [[lo,hi],…] in any order.
func (s *Set) UnmarshalJSON(b []byte) error {
	var rs []Range
	if err := json.Unmarshal(b, &rs); err != nil {
		return err
	}
	*s = Of(rs...)
	return nil
}
