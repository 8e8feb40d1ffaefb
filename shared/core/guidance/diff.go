package guidance

import (
	"cmp"
	"slices"
	"strings"
)

// Change is a difference between two guidances.
type Change struct {
	Kind     Kind   // Add, Drop or Rewrite
	From     int    // the entry's number in the first guidance; 0 for Add
	To       int    // its number in the second one; 0 for Drop
	Old, New string // its texts; "" where it has no number
}

// Diff returns what differs between the entries of a and those of b, by their texts
// alone, so that any two steps can be compared: rewritten and dropped entries by their
// numbers in a, then added ones by their numbers in b. An entry counts as rewritten if
// at least half of the words of both texts together are common to them. Of a merge,
// one entry is rewritten and the others are dropped. An entry that only has another
// number is no difference.
func Diff(a, b Guidance) []Change {
	from, to := unmatched(a, b), unmatched(b, a)
	var out []Change
	for _, pair := range alike(from, to) {
		out = append(out, Change{Rewrite, pair.from.number, pair.to.number, pair.from.text, pair.to.text})
	}
	for _, e := range from {
		if !slices.ContainsFunc(out, func(c Change) bool { return c.From == e.number }) {
			out = append(out, Change{Kind: Drop, From: e.number, Old: e.text})
		}
	}
	slices.SortFunc(out, func(x, y Change) int { return cmp.Compare(x.From, y.From) })
	for _, e := range to {
		if !slices.ContainsFunc(out, func(c Change) bool { return c.To == e.number }) {
			out = append(out, Change{Kind: Add, To: e.number, New: e.text})
		}
	}
	return out
}

// numbered is an entry that the other guidance does not have, and its folded words in
// ascending order.
type numbered struct {
	number int
	text   string
	words  []string
}

// unmatched returns the entries of a whose texts b does not have.
func unmatched(a, b Guidance) (out []numbered) {
	known := b.texts()
	for i, e := range a.Entries {
		if !slices.Contains(known, e.Text) {
			folded, _ := words(e.Text)
			out = append(out, numbered{i + 1, e.Text, slices.Sorted(slices.Values(strings.Fields(folded)))})
		}
	}
	return out
}

// pair is an entry and what it probably became.
type pair struct {
	from, to numbered
	common   float64 // share of their words that both have
}

// alike returns pairs of similar entries, each entry in at most one, the most similar
// first.
func alike(from, to []numbered) (out []pair) {
	var all []pair
	for _, f := range from {
		for _, t := range to {
			if p := (pair{f, t, common(f.words, t.words)}); p.common >= 0.5 {
				all = append(all, p)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y pair) int { return cmp.Compare(y.common, x.common) })
	for _, p := range all {
		if !slices.ContainsFunc(out, func(o pair) bool {
			return o.from.number == p.from.number || o.to.number == p.to.number
		}) {
			out = append(out, p)
		}
	}
	return out
}

// common returns the share of the words of two sorted lists that are in both.
func common(a, b []string) float64 {
	n, total := 0, len(a)+len(b)
	for len(a) > 0 && len(b) > 0 {
		switch c := cmp.Compare(a[0], b[0]); {
		case c < 0:
			a = a[1:]
		case c > 0:
			b = b[1:]
		default:
			a, b, n = a[1:], b[1:], n+2
		}
	}
	return float64(n) / float64(max(total, 1))
}
