// Package commit puts facts that come in any order into the order of shards.
//
//	arrived (any order) ──▶ buffered above the frontier ──▶ committed, in order
//	                                                 frontier ▲
//
// A Log commits a contiguous sequence only: "segment k is in" is its effect,
// and a run's completions.jsonl one case of it. A fact that is already in, or
// comes twice, changes nothing, so no memory of event ids is needed. The
// package holds no facts, only which are in; it is pure.
package commit

import (
	"rollout/shared/core/interval"
	"rollout/shared/fault"
)

// CommitLog says which facts are in. The zero value is empty. Facts are numbered
// from 0.
type CommitLog struct {
	Set interval.Set `json:"set"`
}

// Frontier is the first fact that is not in: all before it are committed.
func (l *CommitLog) Frontier() int { return l.Set.Gap(0) }

// Buffered is how many facts are in above the frontier, waiting for an
// earlier one.
func (l *CommitLog) Buffered() int { return l.Set.Len() - l.Frontier() }

// Add takes fact n in, of known many. fresh is false for a repeated one; the
// range holds what became committed by it, and is empty if an earlier fact is
// still missing. A fact that was never planned is Invalid: the sender follows
// another protocol.
func (l *CommitLog) Add(n, known int) (fresh bool, committed interval.Range, err error) {
	if n < 0 || n >= known {
		return false, interval.Range{}, fault.New(fault.Invalid, "completion of shard %d, but the run has %d so far", n, known)
	}
	before := l.Frontier()
	if !l.Set.Add(n) {
		return false, interval.Range{Lo: before, Hi: before}, nil
	}
	return true, interval.Range{Lo: before, Hi: l.Frontier()}, nil
}
