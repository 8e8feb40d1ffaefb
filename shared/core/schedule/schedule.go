// Package schedule decides which shards may be dispatched, and remembers which
// are.
//
//	planned ──Pick──▶ in flight (chunks) ──done──▶ gone
//	                     └──lost──▶ in flight again, next generation
//
// A candidate is dispatched when every constraint admits it; constraints may
// leave gaps, so dispatch is not contiguous in general. Chunks keep what was
// sent as ranges, so that a run's document stays small. The package is pure.
package schedule

import (
	"time"

	"rollout/shared/core/interval"
)

// MinWindow is how many shards may be in flight at least, and MaxWindow how
// many at most unless the pool can hold more at once: a run's document stays
// within 16 KiB, in whatever order they come back.
const (
	MinWindow = 256
	MaxWindow = 1024
)

// maxBuffered is the number of done shards above the frontier from which the
// window shrinks; at stopBuffered only the frontier is waited for.
const (
	maxBuffered  = 4096
	stopBuffered = 4 * maxBuffered
)

// Window is how many shards of a run may be in flight: MinWindow, or four
// times what the pool can hold at once; an eighth of it, then 1, when much is
// done above the frontier (one slow shard must not make the done set grow
// without bound) or the done set has many holes.
func Window(poolShards, buffered, ranges int) int {
	w := min(max(MinWindow, 4*poolShards), max(MaxWindow, poolShards+poolShards/4))
	switch {
	case buffered > stopBuffered:
		return 1
	case buffered > maxBuffered, ranges > w/4:
		return w / 8
	}
	return w
}

// Candidate is a shard that might be dispatched, with the attributes of its
// cut-table row.
type Candidate struct {
	Shard                       int
	Group, Chain, Variant, Role uint32
}

// Constraint admits candidates. Admit may count what it admitted: it is asked
// once a candidate, in order, and only when all constraints before it agreed.
type Constraint interface {
	Admit(c Candidate) bool
}

// Cap admits candidates while fewer than Max shards are in flight.
type Cap struct{ InFlight, Max int }

// Admit counts the candidate in.
func (c *Cap) Admit(Candidate) bool {
	if c.InFlight >= c.Max {
		return false
	}
	c.InFlight++
	return true
}

// Pick returns the shards among [next, planned) that all constraints admit,
// looking no further than the first refusal of a Cap: at most limit of them.
func Pick(next, planned, limit int, attrs func(n int) Candidate, cs ...Constraint) []interval.Range {
	var out interval.Set
	for n := next; n < planned && limit > 0; n++ {
		c := Candidate{Shard: n}
		if attrs != nil {
			c = attrs(n)
		}
		ok, full := admit(c, cs)
		if full {
			break
		}
		if ok {
			out.Add(n)
			limit--
		}
	}
	return out.Ranges()
}

func admit(c Candidate, cs []Constraint) (ok, full bool) {
	for _, k := range cs {
		if !k.Admit(c) {
			_, isCap := k.(*Cap)
			return false, isCap
		}
	}
	return true, false
}

// Chunk is a range of shards that was sent with one generation. The
// generation tells sends of a shard apart and paces looking again; it is no
// failure count.
type Chunk struct {
	interval.Range
	Generation int
	SentAt     time.Time
}

// Back-off of looking again at a chunk: 5 s, doubling a generation, to 40 s. A
// shard whose holder dies before it could say that it holds it is found by that
// alone, and seven holders die of an item that takes its worker along. Longer
// would spare little: who lives says what it holds, and messages that wait in a
// queue are counted there.
const (
	minLossCheckDelay = 5 * time.Second
	maxLossCheckDelay = 40 * time.Second
)

// LossCheckDelay is how old a chunk of the generation must be before reclaim may
// take its silence for a loss.
func LossCheckDelay(generation int) time.Duration {
	if generation >= 3 {
		return maxLossCheckDelay
	}
	return minLossCheckDelay << generation
}

// Due reports whether the chunk is old enough at now.
func (c Chunk) Due(now time.Time) bool { return now.Sub(c.SentAt) >= LossCheckDelay(c.Generation) }

// Generations count up from 0; after lastGeneration they go round from
// firstLong, where the back-off is at its longest. So few of them are alive at
// once, and a run's document stays small.
const (
	firstLong      = 8
	lastGeneration = 15
)

// NextGeneration is the generation in which a shard of that one is sent again.
func NextGeneration(g int) int {
	if g >= lastGeneration {
		return firstLong
	}
	return g + 1
}
