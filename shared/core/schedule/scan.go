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
// A shard that the constraints refuse is skipped, and costs no more than a look: the
// scan passes it again only when the head of its lane has come so far.
type Scan struct {
	Constraints Constraints
	Pruned      interval.Set // variants of which nothing more is sent
	Rows        Pages        // the attributes of what Gaps.Needs names
	Planned     int          // how many shards are planned
	Window      int          // how many shards may be in flight
}

// Picked is what a scan decided.
type Picked struct {
	Shards    interval.Set // to send
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
	p := &pass{Scan: s, gaps: g, looks: maxLooks, chunks: len(f.Chunks), busy: map[lane]bool{},
		inVariant: map[uint32]int{}, byLane: map[lane]*search{}}
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
	last      int              // the shard that was sent last
}

// search is a head under way.
type search struct {
	Head
	active bool
	over   bool // it found its shard, or nothing is left to find
}

// occupy counts the shards in flight by lane and variant. It returns false if the
// attributes of one are missing.
func (p *pass) occupy(f InFlight) bool {
	for _, c := range f.Chunks {
		for n := c.Lo; n < c.Hi; n++ {
			a, ok := p.Rows.At(n)
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
	limit := p.Constraints.MaxInFlightByVariant
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
		a, known := p.Rows.At(n)
		if !known {
			return
		}
		if !p.Pruned.Has(int(a.Variant)) {
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
	s.over, s.active = true, false
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
	if p.Shards.IsZero() || p.last != n-1 {
		p.chunks++
	}
	p.last = n
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
	for _, order := range [][]*search{chains, rests} {
		first, _ := slices.BinarySearchFunc(order, p.gaps.Cursor, func(s *search, at int) int { return s.At - at })
		if !p.sweep(order[first:]) || !p.sweep(order[:first]) {
			return
		}
	}
	if !p.More {
		p.gaps.Cursor = 0
	}
}

// sweep runs the searches, in their order, over the skipped shards. A search is
// active from its head on until it meets a shard of its lane. The sweep jumps over
// shards before which no search is active. It returns false, and leaves the cursor
// where it stopped, if it may not send or look any further.
func (p *pass) sweep(searches []*search) bool {
	var active []*search
	park := func(at int, which func(*search) bool) {
		active = slices.DeleteFunc(active, func(s *search) bool {
			if !which(s) {
				return false
			}
			s.At, s.active = at, false
			return true
		})
	}
	all := func(*search) bool { return true }
	pos := 0
	for p.maySend() {
		for len(searches) > 0 && (len(active) == 0 || searches[0].At <= pos) {
			s := searches[0]
			searches = searches[1:]
			if p.isFull(s.Variant) {
				continue
			}
			pos = max(pos, s.At)
			s.active, active = true, append(active, s)
		}
		if len(active) == 0 {
			return true
		}
		n, ok := p.gaps.Skipped.Next(pos)
		if !ok { // nothing is left to find
			for _, s := range append(active, searches...) {
				p.end(s)
			}
			return true
		}
		if pos = n; len(searches) > 0 && searches[0].At <= n {
			continue // it is active here too
		}
		if p.looks <= maxLooks-maxSearchLooks {
			p.More = true
			break
		}
		a, known := p.Rows.At(n)
		if !known {
			if !p.More {
				p.More, p.gaps.Cursor = true, n
			}
			park(n, all)
			continue
		}
		p.looks--
		pos++
		s := p.match(a)
		switch {
		case s == nil:
			continue
		case !p.fits(n):
			p.Full = true
			park(n, func(o *search) bool { return o == s })
			continue
		}
		p.gaps.Skipped.Remove(n)
		p.send(n, a)
		if s.Chain != 0 { // the chain is busy now
			p.end(s)
			active = slices.DeleteFunc(active, func(o *search) bool { return o == s })
		}
		if p.isFull(a.Variant) {
			park(pos, func(o *search) bool { return o.Variant == a.Variant })
		}
	}
	if len(active) > 0 {
		p.gaps.Cursor = pos
		park(pos, all)
	}
	return false
}

// match returns the active search that finds a shard of the attributes; nil if none
// does.
func (p *pass) match(a Attributes) *search {
	if p.Pruned.Has(int(a.Variant)) {
		return nil
	}
	l := a.lane(p.Constraints.Chains)
	if p.busy[l] {
		return nil
	}
	s := p.byLane[l]
	if s == nil {
		s = p.byLane[lane{a.Variant, 0}]
	}
	if s == nil || !s.active {
		return nil
	}
	return s
}

// fits reports whether the skipped ranges are few enough when shard n leaves them.
func (p *pass) fits(n int) bool {
	splits := p.gaps.Skipped.Has(n-1) && p.gaps.Skipped.Has(n+1)
	return !splits || len(p.gaps.Skipped.Ranges()) < maxSkipped
}

// lookAtNew sends the shards from NextShard on that the constraints admit, and skips
// the others.
func (p *pass) lookAtNew() {
	for p.NextShard < p.Planned && p.maySend() {
		n := p.NextShard
		a, known := p.Rows.At(n)
		if !known || p.looks == 0 {
			p.More = true
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

// admit reports whether the constraints admit a new shard. full says that it can be
// neither sent nor skipped, for lack of room.
func (p *pass) admit(a Attributes) (admitted, full bool) {
	l := a.lane(p.Constraints.Chains)
	rest := lane{a.Variant, 0}
	if p.Pruned.Has(int(a.Variant)) || p.busy[l] || p.byLane[l] != nil || p.byLane[rest] != nil {
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
