package run

import (
	"fmt"
	"math"

	"rollout/shared/core/interval"
)

// maxBudgeted bounds the open shards of a run with a token budget, each of which may
// have an allowance of its own in the state.
const maxBudgeted = 256

// maxRaised is how many waiting shards one step sends again, so that the effects of a
// step stay small.
const maxRaised = 32

// minShares is among how many shards the free tokens are divided at least, so that the
// first ones leave some for those that are sent soon after.
const minShares = 8

// affordable returns how many shards of the run may be in flight under its token
// budget: as many as the rest of the budget pays for, at the mean cost of the shards
// that are done. Until a cost was observed it is one for each worker. A
// mean of few shards says little: no more are in flight than it was observed of. One
// shard always may, because the run ends only when the budget is used up.
//
//	nothing is done ──▶ one a worker ──▶ as many as are done ──▶ what is left / mean cost ──▶ 1
func (d *decider) affordable() int {
	if d.rules.Tokens <= 0 {
		return math.MaxInt
	}
	most := min(maxBudgeted, max(d.world.Workers, d.answeredShards(), 1))
	mean := d.meanCost()
	if mean == 0 {
		return most
	}
	// Rounded up, without an overflow.
	pays := math.Ceil(float64(max(0, d.rules.Tokens-d.spentTokens())) / mean)
	return max(1, min(most, int(min(pays, maxBudgeted))))
}

// answeredShards returns how many shards are done that were sent.
func (d *decider) answeredShards() int { return d.State.Done.Set.Len() - d.KeptShards - d.PrunedShards }

// meanCost returns how many tokens a shard took on average, 0 if that is not known. A
// shard that waits took at least what it has spent.
func (d *decider) meanCost() float64 {
	n := d.answeredShards() + len(d.Allowances.Waiting())
	if n == 0 {
		return 0
	}
	return float64(d.spentTokens()) / float64(n)
}

// usedTokens returns how many tokens of the budget the shards that are done have used,
// in all their attempts.
func (d *decider) usedTokens() int64 { return d.Counts.Tokens() }

// spentTokens returns how many tokens of the budget are known to be spent.
func (d *decider) spentTokens() int64 { return d.SpentTokens() }

// SpentTokens returns how many tokens of the run's budget are known to be spent: those of
// shards that are done, and of shards that wait for a larger allowance.
func (s State) SpentTokens() int64 {
	_, waiting := s.Allowances.total()
	return s.Counts.Tokens() + waiting
}

// freeTokens returns what of the budget no shard has used and none may spend.
func (d *decider) freeTokens() int64 {
	all, _ := d.Allowances.total()
	return d.rules.Tokens - d.usedTokens() - all
}

// grant returns how many of that many shards may be sent now, and how many tokens
// each of them may spend beyond what it has. In a run without a token budget all may
// be sent, and tokens is 0.
//
// The free tokens are divided among the shards that may be sent, but so that each gets
// twice the mean cost if there is as much: a shard that runs out costs a hand-back.
// What a shard does not spend is free again when it is done. While shards are in
// flight, no other begins with less than the mean cost.
func (d *decider) grant(shards int) (n int, tokens int64) {
	if d.rules.Tokens <= 0 {
		return shards, 0
	}
	active, free, mean := d.InFlight.Len(), d.freeTokens(), int64(math.Ceil(d.meanCost()))
	room := d.affordable() - active
	if free <= 0 || room <= 0 || active > 0 && free < mean {
		return 0, 0
	}
	tokens = min(free, max(free/int64(max(minShares, room)), 2*mean, 1))
	return int(min(int64(shards), int64(room), free/tokens)), tokens
}

// usedUp records a shard that was handed back because it has used up its allowance. It
// waits for a larger one. A report about another allowance than the present one is
// stale: the shard has a larger one by now.
func (d *decider) usedUp(e Event) {
	a, ok := d.Allowances.Of(e.Shard)
	if !ok || a.Waits || a.Tokens != e.Allowance {
		return
	}
	d.wait(e.Shard, max(a.Tokens, e.Spent))
}

// wait makes a shard that has spent the tokens wait for a larger allowance.
func (d *decider) wait(n int, spent int64) {
	d.InFlight.MarkDone(n) // it has no holder and no message
	d.Allowances.set(Allowance{interval.Range{Lo: n, Hi: n + 1}, spent, true})
}

// raise sends shards that wait for a larger allowance again, in order, as far as the
// budget allows. It returns false if some still wait: then no new shard is sent.
func (d *decider) raise() bool {
	waiting := d.Allowances.Waiting()
	for i, n := range waiting {
		if i == maxRaised {
			d.unfinished = true
			return false
		}
		k, tokens := d.grant(1)
		if k == 0 {
			d.Warning = fmt.Sprintf("shards that wait for tokens of the budget: %d; they go on when shards in flight end "+
				"and leave some (limits.tokens is %d)", len(waiting)-i, d.rules.Tokens)
			return false
		}
		a, _ := d.Allowances.Of(n)
		d.send(sending{1, a.Tokens + tokens}, interval.Range{Lo: n, Hi: n + 1})
	}
	return true
}
