package run

import (
	"rollout/shared/core/interval"
	"rollout/shared/fault"
)

// CommitLog puts the completions of shards, which arrive in any order, into
// the order of shards.
//
//	arrived (any order) ──▶ buffered above the frontier ──▶ committed, in order
//	                                                 frontier ▲
//
// It holds only the numbers of the shards that are in, so its zero value is
// empty. A completion that arrives twice changes nothing: the log needs no
// memory of event ids.
type CommitLog struct {
	Set interval.Set `json:"set"`
}

// Frontier returns the first shard that is not in. All shards before it are
// committed.
func (l *CommitLog) Frontier() int { return l.Set.Gap(0) }

// Buffered returns how many shards are in above the frontier and wait for an
// earlier one.
func (l *CommitLog) Buffered() int { return l.Set.Len() - l.Frontier() }

// Add takes in shard n of the known ones, which are 0 to known-1. fresh is
// false if it was in already. committed holds the shards that n committed; it
// is empty while an earlier shard is missing. A shard that is not known is
// Invalid: its sender follows another protocol.
func (l *CommitLog) Add(n, known int) (fresh bool, committed interval.Range, err error) {
	if n < 0 || n >= known {
		return false, interval.Range{}, fault.New(fault.Invalid, "completion of shard %d, but the run has %d so far",
			n, known)
	}
	before := l.Frontier()
	if !l.Set.Add(n) {
		return false, interval.Range{Lo: before, Hi: before}, nil
	}
	return true, interval.Range{Lo: before, Hi: l.Frontier()}, nil
}
