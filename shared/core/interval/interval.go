// Package interval holds sets of shard or item numbers as sorted disjoint ranges.
//
// The done set and the sent shards of a run are nearly contiguous, so that a few
// ranges describe millions of shards. A Set is plain data: it is not safe for
// concurrent use. Its numbers must not be negative.
package interval

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
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

// Union returns the ranges merged into disjoint ones, in order.
func Union(rs []Range) (out []Range) {
	sorted := slices.SortedFunc(slices.Values(rs), func(a, b Range) int { return a.Lo - b.Lo })
	for _, r := range sorted {
		switch last := len(out) - 1; {
		case r.Len() <= 0:
		case last >= 0 && r.Lo <= out[last].Hi:
			out[last].Hi = max(out[last].Hi, r.Hi)
		default:
			out = append(out, r)
		}
	}
	return out
}

// Add adds n and reports whether it was new.
func (s *Set) Add(n int) bool {
	if s.Has(n) {
		return false
	}
	s.AddRange(Range{n, n + 1})
	return true
}

// AddRange adds all numbers of r.
func (s *Set) AddRange(r Range) {
	if r.Lo >= r.Hi {
		return
	}
	// The ranges rs[i:j] touch r and merge with it.
	i := sort.Search(len(s.rs), func(k int) bool { return s.rs[k].Hi >= r.Lo })
	j := sort.Search(len(s.rs), func(k int) bool { return s.rs[k].Lo > r.Hi })
	if i < j {
		r.Lo = min(r.Lo, s.rs[i].Lo)
		r.Hi = max(r.Hi, s.rs[j-1].Hi)
	}
	s.rs = slices.Replace(s.rs, i, j, r)
}

// Remove removes n and reports whether it was in the set.
func (s *Set) Remove(n int) bool {
	i := sort.Search(len(s.rs), func(k int) bool { return s.rs[k].Hi > n })
	if i == len(s.rs) || s.rs[i].Lo > n {
		return false
	}
	r := s.rs[i]
	before, after := Range{r.Lo, n}, Range{n + 1, r.Hi}
	switch {
	case before.Len() > 0 && after.Len() > 0:
		s.rs = slices.Replace(s.rs, i, i+1, before, after)
	case before.Len() > 0:
		s.rs[i] = before
	case after.Len() > 0:
		s.rs[i] = after
	default:
		s.rs = slices.Delete(s.rs, i, i+1)
	}
	return true
}

// Has reports whether n is in the set.
func (s Set) Has(n int) bool {
	i := sort.Search(len(s.rs), func(k int) bool { return s.rs[k].Hi > n })
	return i < len(s.rs) && s.rs[i].Lo <= n
}

// Gap returns the smallest number ≥ from that is not in the set.
func (s Set) Gap(from int) int {
	i := sort.Search(len(s.rs), func(k int) bool { return s.rs[k].Hi > from })
	if i < len(s.rs) && s.rs[i].Lo <= from {
		return s.rs[i].Hi
	}
	return from
}

// Next returns the smallest number ≥ from that is in the set, and false if there
// is none.
func (s Set) Next(from int) (int, bool) {
	i := sort.Search(len(s.rs), func(k int) bool { return s.rs[k].Hi > from })
	if i == len(s.rs) {
		return 0, false
	}
	return max(from, s.rs[i].Lo), true
}

// Missing returns the parts of r that are not in the set, in order.
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

// Len returns how many numbers are in the set.
func (s Set) Len() int {
	n := 0
	for _, r := range s.rs {
		n += r.Len()
	}
	return n
}

// IsZero reports whether the set is empty, so that JSON can omit it.
func (s Set) IsZero() bool { return len(s.rs) == 0 }

// Ranges returns the disjoint ranges in order. The caller must not change them.
func (s Set) Ranges() []Range { return s.rs }

// Clone returns an independent copy.
func (s Set) Clone() Set { return Set{append([]Range(nil), s.rs...)} }

// MarshalJSON writes [gap,length,gap,length,…]: from 0 on, how many numbers are
// not in the set, then how many are, and so on. Small numbers keep a set with many
// holes short.
func (s Set) MarshalJSON() ([]byte, error) { return json.Marshal(s.Gaps()) }

// Gaps returns the set as gap, length, gap, length and so on: what FromGaps reads.
func (s Set) Gaps() []int {
	out := make([]int, 0, 2*len(s.rs))
	at := 0
	for _, r := range s.rs {
		out = append(out, r.Lo-at, r.Len())
		at = r.Hi
	}
	return out
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

// FromGaps returns the ranges of a list of gap, length, gap, length, …, the form of
// a Set's JSON. A length must be positive, and so must every gap but the first.
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
