package schedule

import (
	"slices"

	"rollout/shared/core/interval"
)

// Bounds of a scan, with which a run's document stays within 16 KiB whatever the
// order in which shards are skipped, sent and done. A scan that meets one of them
// leaves shards where they are until there is room again.
const (
	maxLooks   = 4096 // shards that one scan looks at
	maxSkipped = 256  // ranges of skipped shards
	maxChunks  = 256  // ranges of shards in flight
	maxHeads   = 256  // heads, from which on no chain begins
	// maxConstrained is the largest window of a run that skips shards.
	maxConstrained = 512
	// maxKept bounds the ranges of kept shards that are done before the shards around them.
	maxKept = 128
)

// Scan picks the shards to send next under constraints that depend on a shard's
// attributes. It searches the skipped shards first, from the heads of Gaps, and then
// looks at new ones:
//
//	             ┌──────── passed ────────┐
//	shards   0 ▓▓▓▓░▓▓░░░░▓░░░▓▓▓▓░░▓░░░░░░│· · · · · · · · ·│ planned
//	                ▲   ▲        ▲   ▲     NextShard: new ones
//	                heads: each searches ─▶ for the next skipped shard (░) of its lane
//
// A shard that the constraints refuse is skipped, and costs no more than a look. The
// search of its lane jumps to its page with the Outline.
type Scan struct {
	Constraints Constraints
	Pruned      Pruned
	Rows        Pages   // of the pages that Needs names
	Outline     Outline // of as many pages as are known
	Planned     int     // how many shards are planned, and may be sent
	Window      int     // how many shards may be in flight
	Done        int     // how many ranges of shards are done
}

// Picked is what a scan decided.
type Picked struct {
	Shards    interval.Set // to send
	Kept      interval.Set // that are done, because a child run keeps them
	NextShard int          // the first shard that no scan has passed
	// More says that the scan ended because it had looked at enough, or lacked
	// attributes, so that another scan may find more at once.
	More bool
	// Full says that the scan would have to skip more ranges than may be skipped.
	Full bool
}

// Pick scans the shards before next that g skipped, and those from next on. It
// changes g to what is skipped then, and leaves it to the caller to mark the picked
// shards in f.
func (s Scan) Pick(g *Gaps, f InFlight, next int) Picked {
	p := &pass{Scan: s, gaps: g, looks: maxLooks, chunks: len(f.Chunks), busy: make(map[lane]bool, f.Len()),
		inVariant: map[uint32]int{}, byLane: map[lane]*search{}, rows: reader{pages: s.Rows}}
	p.NextShard = next
	limit := min(s.Window, maxConstrained)
	if c := s.Constraints.MaxInFlight; c > 0 {
		limit = min(limit, c)
	}
	if p.room = limit - f.Len(); !p.occupy(f) {
		p.More = true // nothing may be sent while it is not known which chains are busy
		return p.Picked
	}
	p.openSearches(f)
	p.searchSkipped()
	p.lookAtNew()
	p.closeSearches()
	return p.Picked
}

// pass is one scan under way.
type pass struct {
	Scan
	Picked
	gaps      *Gaps
	room      int // how many more shards may be sent
	looks     int // how many more shards may be looked at
	chunks    int // ranges in flight
	busy      map[lane]bool
	inVariant map[uint32]int   // shards in flight
	searches  []*search        // sorted by At
	byLane    map[lane]*search // those that are not over
	rows      reader
}

// search is a head under way.
type search struct {
	Head
	found Attributes // of the shard At, once find has found it
	over  bool       // it found its shard, or nothing is left to find
}

// occupy counts the shards in flight by lane and variant. It returns false if the
// attributes of one are missing.
func (p *pass) occupy(f InFlight) bool {
	for _, c := range f.Chunks {
		for n := c.Lo; n < c.Hi; n++ {
			a, ok := p.rows.at(n)
			if !ok {
				return false
			}
			p.hold(a)
		}
	}
	return true
}

// hold counts a shard in flight.
func (p *pass) hold(a Attributes) {
	p.inVariant[a.Variant]++
	if l := a.lane(p.Constraints.Chains); l.chain != 0 {
		p.busy[l] = true
	}
}

// isFull reports whether no further shard of the variant may be in flight.
func (p *pass) isFull(variant uint32) bool {
	limit := p.Constraints.maxOf(variant)
	return limit > 0 && p.inVariant[variant] >= limit
}

// openSearches opens the searches of the heads.
func (p *pass) openSearches(f InFlight) {
	for _, h := range p.gaps.Heads {
		p.open(h)
	}
	p.reopen(f)
	slices.SortStableFunc(p.searches, func(a, b *search) int { return a.At - b.At })
}

// reopen opens a search for the first skipped shard if none is open and nothing is
// in flight, so that no shard stays skipped under rules that have changed.
func (p *pass) reopen(f InFlight) {
	if len(p.searches) > 0 || len(f.Chunks) > 0 {
		return
	}
	for n, ok := p.gaps.Skipped.Next(0); ok; n, ok = p.gaps.Skipped.Next(n + 1) {
		a, known := p.rows.at(n)
		if !known {
			return
		}
		if !p.Pruned.Has(a.Variant, n) {
			p.open(Head{At: n, Variant: a.Variant})
			return
		}
	}
}

func (p *pass) open(h Head) {
	s := &search{Head: h}
	p.searches = append(p.searches, s)
	p.byLane[h.lane()] = s
}

// end ends a search that needs no head any more.
func (p *pass) end(s *search) {
	s.over = true
	delete(p.byLane, s.lane())
}

// closeSearches writes the heads of the searches that are not over into the gaps.
func (p *pass) closeSearches() {
	p.gaps.Heads = nil
	for _, s := range p.searches {
		if !s.over {
			p.gaps.Heads = append(p.gaps.Heads, s.Head)
		}
	}
	slices.SortFunc(p.gaps.Heads, Head.compare)
}

// maySend reports whether any further shard may be in flight.
func (p *pass) maySend() bool { return p.room > 0 && p.chunks < maxChunks }

// send picks shard n.
func (p *pass) send(n int, a Attributes) {
	switch before, after := p.Shards.Has(n-1), p.Shards.Has(n+1); {
	case before && after:
		p.chunks--
	case !before && !after:
		p.chunks++
	}
	p.Shards.Add(n)
	p.hold(a)
	p.room--
}

// maxSearchLooks is how many looks of a scan search the skipped shards. The others
// are kept for new ones.
const maxSearchLooks = maxLooks * 3 / 4

// searchSkipped searches the skipped shards for chains with a head of their own, and
// then for the rest of each variant, so that no more chains begin than need be. It
// begins at the cursor, and goes on from the first shard to there.
func (p *pass) searchSkipped() {
	var chains, rests []*search
	for _, s := range p.searches {
		if s.Chain != 0 {
			chains = append(chains, s)
		} else {
			rests = append(rests, s)
		}
	}
	if p.sendFound(chains) && p.sendFound(rests) && !p.More {
		p.gaps.Cursor = 0
	}
}

// sendFound sends the shards that the searches find, in their order from the cursor
// on. It returns false, and leaves the cursor where it stopped, if no further shard
// may be in flight.
func (p *pass) sendFound(searches []*search) bool {
	if !p.maySend() {
		return false
	}
	cursor := p.gaps.Cursor
	first, _ := slices.BinarySearchFunc(searches, cursor, func(s *search, at int) int { return s.At - at })
	var found []*search
	for _, s := range slices.Concat(searches[first:], searches[:first]) {
		if p.find(s) {
			found = append(found, s)
		}
	}
	order := func(a, b *search) int {
		if (a.At < cursor) != (b.At < cursor) {
			return b.At - a.At
		}
		return a.At - b.At
	}
	slices.SortFunc(found, order)
	for len(found) > 0 {
		s := found[0]
		found = found[1:]
		switch {
		case !p.maySend():
			p.gaps.Cursor = s.At
			return false
		case p.isFull(s.Variant):
			continue
		case !p.fits(s.At):
			p.Full = true
			continue
		}
		p.gaps.Skipped.Remove(s.At)
		p.send(s.At, s.found)
		if s.Chain != 0 { // the chain is busy now
			p.end(s)
			continue
		}
		s.At++
		if p.find(s) {
			i, _ := slices.BinarySearchFunc(found, s, order)
			found = slices.Insert(found, i, s)
		}
	}
	return true
}

// find moves a search to the next shard that it may send. It returns false if there
// is none, or the scan ends before it: then the next one goes on from there.
func (p *pass) find(s *search) bool {
	switch {
	case p.Pruned.Has(s.Variant, s.At), s.Chain != 0 && !p.Constraints.Chains:
		p.end(s)
		return false
	case p.isFull(s.Variant), p.busy[s.lane()]:
		return false
	}
	for {
		n, ok := p.candidate(p.gaps, s.lane(), s.At)
		if !ok || p.Pruned.Has(s.Variant, n) {
			p.end(s)
			return false
		}
		s.At = n
		page, known := p.Rows.page(n)
		if !known || p.looks <= maxLooks-maxSearchLooks {
			if !p.More {
				p.More, p.gaps.Cursor = true, n
			}
			return false
		}
		p.looks--
		for {
			if s.At, ok = page.skipped(p.gaps, s.lane(), s.At); !ok {
				break
			}
			if p.Pruned.Has(s.Variant, s.At) {
				p.end(s)
				return false
			}
			s.found = page.Rows[s.At-page.First]
			if l := s.found.lane(p.Constraints.Chains); l == s.lane() || !p.busy[l] && p.byLane[l] == nil {
				return true
			}
			p.looks--
			s.At++
		}
	}
}

// fits reports whether the skipped ranges are few enough when shard n leaves them.
func (p *pass) fits(n int) bool {
	splits := p.gaps.Skipped.Has(n-1) && p.gaps.Skipped.Has(n+1)
	return !splits || len(p.gaps.Skipped.Ranges()) < maxSkipped
}

// lookAtNew sends the shards from NextShard on that the constraints admit, and skips
// the others. It passes kept shards also when no further shard may be in flight.
func (p *pass) lookAtNew() {
	for p.NextShard < p.Planned {
		n := p.NextShard
		a, known := p.rows.at(n)
		if !known || p.looks <= 0 {
			p.More = known || p.maySend()
			return
		}
		if a.Kept {
			if !p.keep(n) {
				return
			}
			p.looks--
			p.NextShard++
			continue
		}
		if !p.maySend() {
			return
		}
		p.looks--
		switch admitted, full := p.admit(a); {
		case full:
			p.Full = true
			return
		case admitted:
			p.send(n, a)
		case !p.gaps.Skipped.Has(n-1) && len(p.gaps.Skipped.Ranges()) >= maxSkipped:
			p.Full = true
			return
		default:
			p.gaps.Skipped.Add(n)
		}
		p.NextShard++
	}
}

// keep passes a kept shard, unless too many ranges of shards are done before others.
func (p *pass) keep(n int) bool {
	if !p.Picked.Kept.Has(n-1) && p.Scan.Done+len(p.Picked.Kept.Ranges()) >= maxKept {
		return false
	}
	p.Picked.Kept.Add(n)
	return true
}

// admit reports whether the constraints admit a new shard. full says that it can be
// neither sent nor skipped, for lack of room.
func (p *pass) admit(a Attributes) (admitted, full bool) {
	l := a.lane(p.Constraints.Chains)
	rest := lane{a.Variant, 0}
	if p.Pruned.Has(a.Variant, p.NextShard) || p.busy[l] || p.byLane[l] != nil || p.byLane[rest] != nil {
		return false, false
	}
	if p.isFull(a.Variant) {
		if len(p.byLane) >= maxHeads || !p.gaps.Skipped.Has(p.NextShard-1) && len(p.gaps.Skipped.Ranges()) >= maxSkipped {
			return false, true
		}
		p.open(Head{At: p.NextShard, Variant: a.Variant})
		return false, false
	}
	full = l.chain != 0 && len(p.byLane) >= maxHeads
	return !full, full
}
