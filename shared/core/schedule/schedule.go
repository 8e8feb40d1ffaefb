// Package schedule decides which shards of a run may be sent, and records which
// are in flight and which were skipped.
//
//	planned ──Scan──▶ in flight (chunks) ──done──▶ removed
//	    │               ▲  └──lost──▶ in flight again, next generation
//	    └──▶ skipped ───┘
//
// A Scan sends a shard when the run's Constraints admit it, and skips it otherwise.
// InFlight and Gaps record the shards as ranges, so that a run's document stays
// small. Most runs have no constraint but their window: they send their shards in
// order and skip none. The package is pure.
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
