package schedule

import (
	"sort"

	"rollout/shared/core/interval"
)

// Attributes are what dispatch asks of a shard: a part of its row in the shard
// table.
type Attributes struct {
	Chain   uint32 // 0: it belongs to no chain
	Variant uint32
	Role    uint32
	Items   uint32 // at least 1
}

// lane is what the shards of one chain of one variant share. Lane (v, 0) is the
// rest of variant v: its shards without a chain, and its chains without a shard in
// flight and without a head.
type lane struct{ variant, chain uint32 }

// lane returns the lane of a shard with the attributes. Without chain leases all
// shards of a variant share one.
func (a Attributes) lane(chains bool) lane {
	if !chains {
		return lane{a.Variant, 0}
	}
	return lane{a.Variant, a.Chain}
}

// Page holds the attributes of consecutive shards, from shard First on.
type Page struct {
	First int
	Rows  []Attributes
}

// Pages hold the attributes of some shards. They are sorted and do not overlap.
type Pages []Page

// At returns the attributes of shard n, and false if no page holds them.
func (ps Pages) At(n int) (Attributes, bool) {
	i := sort.Search(len(ps), func(k int) bool { return ps[k].First > n }) - 1
	if i < 0 || n-ps[i].First >= len(ps[i].Rows) {
		return Attributes{}, false
	}
	return ps[i].Rows[n-ps[i].First], true
}

// Constraints say which shards of a run may be in flight together. They are plain
// data: a part of what a kind of run is. The zero value constrains nothing.
type Constraints struct {
	// MaxInFlight is how many shards of the run may be in flight; 0: as many as its
	// window allows.
	MaxInFlight int
	// MaxInFlightByVariant is how many shards of each variant may be in flight; 0:
	// any number.
	MaxInFlightByVariant int
	// Chains allows one shard in flight of each chain of each variant, and sends the
	// shards of a chain in their order.
	Chains bool
}

// NeedAttributes reports whether the constraints depend on a shard's attributes,
// and may therefore skip a shard.
func (c Constraints) NeedAttributes() bool { return c.Chains || c.MaxInFlightByVariant > 0 }

// How many of the shards after a head, after the cursor, and after the shards that
// were passed a scan is given the attributes of. Without them it ends early.
const (
	aheadOfHead   = 256
	aheadOfCursor = maxSearchLooks
	aheadOfNext   = maxLooks
)

// Needs returns the shards whose attributes a scan of g may look at: those in
// flight, the skipped ones after each head, after the cursor and after the shards that
// finished, and those after next, up to planned. Attributes that are missing only end a scan
// early. The ranges may overlap.
func (g Gaps) Needs(f InFlight, finished []int, next, planned int) (out []interval.Range) {
	for _, c := range f.Chunks {
		out = append(out, c.Range)
	}
	look := func(at, many int) {
		if n, ok := g.Skipped.Next(at); ok {
			out = append(out, interval.Range{Lo: n, Hi: min(n+many, next)})
		}
	}
	for _, n := range finished {
		look(n+1, aheadOfHead)
	}
	for _, h := range g.Heads {
		look(h.At, aheadOfHead)
	}
	look(g.Cursor, aheadOfCursor)
	return append(out, interval.Range{Lo: next, Hi: min(next+aheadOfNext, planned)})
}
