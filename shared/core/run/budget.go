package run

import "math"

// affordable returns how many shards of the run may be in flight under its token
// budget: as many as the rest of the budget pays for, at the mean cost of the shards
// that are done, so that the budget is overshot by little more than what single
// shards cost above the mean. Until a cost was observed it is one for each worker. A
// mean of few shards says little: no more are in flight than it was observed of. One
// shard always may, because the run ends only when the budget is used up.
//
//	nothing is done ──▶ one a worker ──▶ as many as are done ──▶ what is left / mean cost ──▶ 1
func (d *decider) affordable() int {
	if d.rules.Tokens <= 0 {
		return math.MaxInt
	}
	done, used := int64(d.State.Done.Set.Len()-d.KeptShards), d.usedTokens()
	most := max(int64(d.world.Workers), done, 1)
	if done == 0 || used == 0 {
		return int(most)
	}
	left := max(0, d.rules.Tokens-used)
	// left / (used / done), rounded up, without an overflow.
	pays := math.Ceil(float64(left) * float64(done) / float64(used))
	return int(max(1, min(most, int64(min(pays, math.MaxInt32)))))
}

// usedTokens returns how many tokens of the budget the shards that are done have used.
func (d *decider) usedTokens() int64 { return d.Counts.PromptTokens + d.Counts.CompletionTokens }
