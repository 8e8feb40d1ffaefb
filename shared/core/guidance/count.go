package guidance

import "slices"

// Tally counts the answers that used an entry.
type Tally struct{ Hits, Misses int }

// Count returns the guidance with the tallies added to its entries, which were used in
// its step. used is by the entries' numbers; numbers that do not exist, which answers
// may well name, are ignored. The step stays.
func (g Guidance) Count(used map[int]Tally) Guidance {
	g.Entries = slices.Clone(g.Entries)
	for i := range g.Entries {
		e := &g.Entries[i]
		if t, ok := used[i+1]; ok {
			e.Hits, e.Misses = min(e.Hits+t.Hits, maxCount), min(e.Misses+t.Misses, maxCount)
			e.LastUsed = g.Step
		}
	}
	return g
}
