// Package schedule decides which shards of a run may be sent, and records which
// are in flight.
//
//	planned ──Pick──▶ in flight (chunks) ──done──▶ removed
//	                     └──lost──▶ in flight again, next generation
//
// A candidate is sent when every constraint admits it. Constraints may leave gaps,
// so the sent shards need not be contiguous. Chunks record them as ranges, so that
// a run's document stays small. The package is pure.
package schedule

import (
	"time"

	"rollout/shared/core/interval"
)

// minWindow is the smallest window, and maxWindow the largest, unless the pool can
// hold more shards at once. With them a run's document stays within 16 KiB, in
// any order in which shards are done.
const (
	minWindow = 256
	maxWindow = 1024
)

// Above maxBuffered done shards above the frontier, the window shrinks. Above
// stopBuffered, only one shard may be in flight.
const (
	maxBuffered  = 4096
	stopBuffered = 4 * maxBuffered
)

// Window returns how many shards of a run may be in flight: four times the
// poolShards that the pool can hold at once, within bounds. It is an eighth of
// that when many shards are buffered (done above the frontier) or the done set has
// many ranges, and 1 when very many are buffered, so that one slow shard cannot
// let the done set grow without bound.
func Window(poolShards, buffered, ranges int) int {
	w := min(max(minWindow, 4*poolShards), max(maxWindow, poolShards+poolShards/4))
	switch {
	case buffered > stopBuffered:
		return 1
	case buffered > maxBuffered, ranges > w/4:
		return w / 8
	}
	return w
}

// Candidate is a shard that could be sent, with the attributes of its row in the
// shard table.
type Candidate struct {
	Shard                       int
	Group, Chain, Variant, Role uint32
}

// Constraint admits candidates. Pick calls Admit at most once for each candidate,
// in order, and only when all earlier constraints admitted it, so that Admit may
// count what it admits.
type Constraint interface {
	Admit(c Candidate) bool
}

// Cap admits candidates while fewer than Max shards are in flight.
type Cap struct{ InFlight, Max int }

// Admit counts the candidate as in flight, if the cap allows it.
func (c *Cap) Admit(Candidate) bool {
	if c.InFlight >= c.Max {
		return false
	}
	c.InFlight++
	return true
}

// Pick returns the shards of [next, planned) that all constraints admit, at most
// limit of them. It stops at the first candidate that a Cap refuses. attrs returns
// a shard's attributes; nil if the constraints need none.
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

// admit reports whether all constraints admit c, and whether a Cap is full.
func admit(c Candidate, cs []Constraint) (ok, full bool) {
	for _, k := range cs {
		if !k.Admit(c) {
			_, isCap := k.(*Cap)
			return false, isCap
		}
	}
	return true, false
}

// Chunk is a range of shards that were sent with one generation. The generation
// distinguishes the sends of a shard and spaces its loss checks; it is not a
// failure count.
type Chunk struct {
	interval.Range
	Generation int
	SentAt     time.Time
}

// Backoff of the loss checks of a chunk: 5 s, doubled with each generation, up to
// 40 s. Only a loss check finds a shard whose holder died before its first
// heartbeat after the claim, and an item that takes its worker down kills seven
// holders. A longer delay would save little: heartbeats list held shards, and the
// queue counts waiting messages.
const (
	minLossCheckDelay = 5 * time.Second
	maxLossCheckDelay = 40 * time.Second
)

// lossCheckDelay returns how old a chunk of the generation must be before reclaim
// may judge whether its shards are lost.
func lossCheckDelay(generation int) time.Duration {
	if generation >= 3 {
		return maxLossCheckDelay
	}
	return minLossCheckDelay << generation
}

// Due reports whether the chunk is old enough at now for a loss check.
func (c Chunk) Due(now time.Time) bool { return now.Sub(c.SentAt) >= lossCheckDelay(c.Generation) }

// Generations count up from 0. After lastGeneration they repeat from
// firstRepeated, where the backoff is at its longest. So few are in use at once,
// and a run's document stays small.
const (
	firstRepeated  = 8
	lastGeneration = 15
)

// NextGeneration returns the generation with which a shard of generation g is sent
// again.
func NextGeneration(g int) int {
	if g >= lastGeneration {
		return firstRepeated
	}
	return g + 1
}
