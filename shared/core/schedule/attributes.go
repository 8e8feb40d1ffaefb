package schedule

import (
	"math/bits"
	"sort"
)

// Attributes are what dispatch asks of a shard: a part of its row in the shard
// table.
type Attributes struct {
	Chain   uint32 // 0: it belongs to no chain
	Variant uint32
	Role    uint32
	Items   uint32 // at least 1
	Kept    bool   // a child run has its rows from its parent: it is done without being sent
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

// PageShards is how many shards a page holds. Page k begins with shard k × PageShards;
// only the last page of a plan may hold fewer.
const PageShards = 256

// Page holds the attributes of consecutive shards, from shard First on.
type Page struct {
	First int
	Rows  []Attributes
}

// Pages hold the attributes of some shards. They are sorted.
type Pages []Page

// page returns the page that holds shard n, and false if none does.
func (ps Pages) page(n int) (Page, bool) {
	i := sort.Search(len(ps), func(k int) bool { return ps[k].First > n }) - 1
	if i < 0 || n-ps[i].First >= len(ps[i].Rows) {
		return Page{}, false
	}
	return ps[i], true
}

// At returns the attributes of shard n, and false if no page holds them.
func (ps Pages) At(n int) (Attributes, bool) {
	p, ok := ps.page(n)
	if !ok {
		return Attributes{}, false
	}
	return p.Rows[n-p.First], true
}

// reader reads the attributes of shards of which most follow each other.
type reader struct {
	pages Pages
	last  Page
}

func (r *reader) at(n int) (Attributes, bool) {
	if i := n - r.last.First; i < 0 || i >= len(r.last.Rows) {
		p, ok := r.pages.page(n)
		if !ok {
			return Attributes{}, false
		}
		r.last = p
	}
	return r.last.Rows[n-r.last.First], true
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
	// OfVariants are the limits of single variants, by their number, in the place of
	// MaxInFlightByVariant; 0: any number. Variants behind its end have none of their own.
	OfVariants []int
	// Chains allows one shard in flight of each chain of each variant, and sends the
	// shards of a chain in their order.
	Chains bool
}

// NeedAttributes reports whether the constraints depend on a shard's attributes,
// and may therefore skip a shard.
func (c Constraints) NeedAttributes() bool {
	return c.Chains || c.MaxInFlightByVariant > 0 || len(c.OfVariants) > 0
}

// maxOf returns how many shards of a variant may be in flight; 0: any number.
func (c Constraints) maxOf(variant uint32) int {
	if int64(variant) < int64(len(c.OfVariants)) {
		return c.OfVariants[variant]
	}
	return c.MaxInFlightByVariant
}

// pagesOfRest is how many pages with skipped shards Needs names for the rest of a
// variant. Those of the first one may all belong to chains that are busy.
const pagesOfRest = 2

// Needs returns the pages, in order, which Pick may look at and s.Rows lacks: those of
// shards in flight, those where the heads find their shards, and those after next. It
// must be asked again with the pages that it names, until it names none, because only
// they say where the chains of shards that finished go on, and what the outline does
// not know. Pages that are missing only end a scan early, but for those of shards in
// flight.
func (s Scan) Needs(g Gaps, f InFlight, finished []int, next int) (pages []int) {
	need := make([]uint64, s.Planned/PageShards/64+1)
	add := func(lo, hi int) { // the pages of the shards from lo to hi
		for k := lo / PageShards; k*PageShards < min(hi, s.Planned); k++ {
			need[k/64] |= 1 << (k % 64)
		}
	}
	for _, c := range f.Chunks {
		add(c.Lo, c.Hi)
	}
	search := func(l lane, at int) {
		more := 1
		if l.chain == 0 {
			more = pagesOfRest
		}
		for more > 0 {
			n, ok := s.candidate(&g, l, at)
			if !ok || s.Pruned.Has(l.variant, n) {
				return
			}
			if page, known := s.Rows.page(n); !known {
				add(n, n+1)
				more--
			} else if _, has := page.skipped(&g, l, n); has {
				more--
			}
			at = (n/PageShards + 1) * PageShards
		}
	}
	if s.Constraints.Chains {
		rows := reader{pages: s.Rows}
		for _, n := range finished {
			if a, ok := rows.at(n); ok && a.Chain != 0 {
				search(a.lane(true), n+1)
			}
		}
	}
	for _, h := range g.Heads {
		search(h.lane(), h.At)
	}
	if n, ok := g.Skipped.Next(0); ok && len(g.Heads) == 0 { // see reopen
		add(n, n+PageShards)
	}
	add(next, next+maxLooks)
	for _, p := range s.Rows {
		if k := p.First / PageShards; k < len(need)*64 {
			need[k/64] &^= 1 << (k % 64)
		}
	}
	for i, w := range need {
		for ; w != 0; w &= w - 1 {
			pages = append(pages, i*64+bits.TrailingZeros64(w))
		}
	}
	return pages
}

// skipped returns the first skipped shard of the page, from shard n on, that belongs to
// the lane, or to the variant if the lane is its rest; false if there is none.
func (p Page) skipped(g *Gaps, l lane, n int) (int, bool) {
	for ; n < p.First+len(p.Rows); n++ {
		a := p.Rows[n-p.First]
		if a.Variant == l.variant && (a.Chain == l.chain || l.chain == 0) && g.Skipped.Has(n) {
			return n, true
		}
	}
	return n, false
}

// candidate returns the first skipped shard from at on whose page may hold shards of
// the lane; false if there is none.
func (s Scan) candidate(g *Gaps, l lane, at int) (int, bool) {
	for {
		n, ok := g.Skipped.Next(at)
		if !ok {
			return 0, false
		}
		if at = s.Outline.next(l, n/PageShards) * PageShards; at <= n {
			return n, true
		}
	}
}
