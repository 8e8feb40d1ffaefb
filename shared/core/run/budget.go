package run

import (
	"fmt"
	"math"
	"strconv"

	"rollout/shared/core/cost"
	"rollout/shared/core/interval"
)

// maxBudgeted bounds the open shards of a run with a budget, each of which may have an
// allowance of its own in the state.
const maxBudgeted = 192

// maxRaised is how many waiting shards one step sends again, so that the effects of a
// step stay small.
const maxRaised = 32

// minShares is among how many shards what is free of a budget is divided at least, so that
// the first ones leave some for those that are sent soon after.
const minShares = 8

// budget is one of a run's budgets, in tokens or in millionths of a dollar. One whose limit
// is 0 does not exist.
type budget struct {
	limit    int64
	used     int64 // by shards that are done and, of money, by the control plane
	waiting  int64 // by shards that wait for a larger allowance
	open     int64 // what open shards may spend, those that wait included
	overhead int64 // what a shard more takes beside its allowance
	mean     float64
}

// spent returns how much of the budget is known to be spent.
func (b budget) spent() int64 { return b.used + b.waiting }

// free returns what of the budget is not used and no shard may spend.
func (b budget) free() int64 { return b.limit - b.used - b.open }

// pays returns for how many shards at the mean cost the rest of the budget pays, if that is
// less than most. Until a cost was observed it returns most.
func (b budget) pays(most int) int {
	if b.limit <= 0 || b.mean == 0 {
		return most
	}
	// Rounded up, without an overflow.
	pays := math.Ceil(float64(max(0, b.limit-b.spent())) / b.mean)
	return min(most, int(min(pays, maxBudgeted)))
}

// share returns for how many of n shards the free part pays, and how much each of them may
// spend beyond what it has. room is how many shards may be in flight beside the active ones.
//
// The free part is divided among the shards that may be sent, but so that each gets
// twice the mean cost if there is as much: a shard that runs out costs a hand-back.
// What a shard does not spend is free again when it is done. While shards are in
// flight, no other begins with less than the mean cost.
func (b budget) share(n, room, active int) (int, int64) {
	if b.limit <= 0 {
		return n, 0
	}
	free, mean := b.free(), int64(math.Ceil(b.mean))
	if free <= 0 || active > 0 && free < mean {
		return 0, 0
	}
	// A shard takes its overhead as well: what is left must pay for both.
	each := min(max(1, free-b.overhead), max(free/int64(max(minShares, room)), 2*mean, 1))
	pays := free / (each + b.overhead)
	if active == 0 {
		pays = max(1, pays) // the run goes on as long as anything is left
	}
	return int(min(int64(n), pays)), each
}

// budgets returns the run's budgets.
func (d *decider) budgets() (tokens, money budget) {
	limit, used := d.rules.Budget, d.Counts.Spend()
	all, waiting := d.Allowances.total()
	tokens = budget{limit: limit.Tokens, used: used.Tokens, waiting: waiting.Tokens, open: all.Tokens}
	money = budget{limit: limit.MicroUSD, used: used.MicroUSD + d.controlPlane(d.Sent()), waiting: waiting.MicroUSD,
		open: all.MicroUSD, overhead: d.controlPlane(d.Sent()+1) - d.controlPlane(d.Sent())}
	// A shard that waits took at least what it has spent.
	if n := d.answeredShards() + len(d.Allowances.Waiting()); n > 0 {
		tokens.mean = float64(tokens.spent()) / float64(n)
		money.mean = float64(money.spent()) / float64(n)
	}
	return tokens, money
}

// controlPlane returns what the functions and the requests to stores cost of a run that has
// sent so many shards, in millionths of a dollar; 0 if no budget counts it.
func (d *decider) controlPlane(sent int) int64 {
	if d.rules.Budget.MicroUSD <= 0 {
		return 0
	}
	functions, storage := d.rules.Prices.ControlPlane(max(0, sent-d.KeptShards), d.Counts.Machines.Sum().Micros())
	return int64(math.Ceil((functions + storage) * 1e6))
}

// affordable returns how many shards of the run may be in flight under its budgets: as
// many as the rest of each budget pays for, at the mean cost of the shards
// that are done. Until a cost was observed it is one for each worker. A
// mean of few shards says little: no more are in flight than it was observed of. One
// shard always may, because the run ends only when a budget is used up.
//
//	nothing is done ──▶ one a worker ──▶ as many as are done ──▶ what is left / mean cost ──▶ 1
func (d *decider) affordable(tokens, money budget) int {
	most := min(maxBudgeted, max(d.world.Workers, d.answeredShards(), 1))
	return max(1, money.pays(tokens.pays(most)))
}

// answeredShards returns how many shards are done that were sent.
func (d *decider) answeredShards() int { return d.State.Done.Set.Len() - d.KeptShards - d.PrunedShards }

// Spent returns how much of the run's budgets is known to be spent: by shards that are
// done, by shards that wait for a larger allowance and, in a run with a budget in dollars, by
// the control plane.
func (s State) Spent() cost.Spend {
	_, waiting := s.Allowances.total()
	return s.Counts.Spend().Plus(waiting).Plus(cost.Spend{MicroUSD: s.ControlMicroUSD})
}

// grant returns how many of that many shards may be sent now, and how much each of them may
// spend beyond what it has. In a run without a budget all may be sent, and more is zero.
func (d *decider) grant(shards int) (n int, more cost.Spend) {
	if d.rules.Budget.IsZero() {
		return shards, more
	}
	tokens, money := d.budgets()
	active := d.InFlight.Len()
	room := d.affordable(tokens, money) - active
	if room <= 0 {
		return 0, more
	}
	n, more.Tokens = tokens.share(min(shards, room), room, active)
	n, more.MicroUSD = money.share(n, room, active)
	if n == 0 {
		return 0, cost.Spend{}
	}
	return n, more
}

// usedUp records a shard that was handed back because it has used up its allowance. It
// waits for a larger one. A report about another allowance than the present one is
// stale: the shard has a larger one by now.
func (d *decider) usedUp(e Event) {
	a, ok := d.Allowances.Of(e.Shard)
	if !ok || a.Waits || a.Spend != e.Allowance {
		return
	}
	spent := e.Spent
	if !spent.Reaches(a.Spend) {
		spent = spent.AtLeast(a.Spend)
	}
	d.wait(e.Shard, spent)
}

// wait makes a shard that has spent so much wait for a larger allowance.
func (d *decider) wait(n int, spent cost.Spend) {
	d.InFlight.MarkDone(n) // it has no holder and no message
	d.Allowances.set(Allowance{interval.Range{Lo: n, Hi: n + 1}, d.counted(spent), true})
}

// counted returns the parts of an amount that a budget of the run counts.
func (d *decider) counted(s cost.Spend) cost.Spend {
	if d.rules.Budget.Tokens <= 0 {
		s.Tokens = 0
	}
	if d.rules.Budget.MicroUSD <= 0 {
		s.MicroUSD = 0
	}
	return s
}

// raise sends shards that wait for a larger allowance again, in order, as far as the
// budgets allow. It returns false if some still wait: then no new shard is sent.
func (d *decider) raise() bool {
	waiting := d.Allowances.Waiting()
	for i, n := range waiting {
		if i == maxRaised {
			d.unfinished = true
			return false
		}
		k, more := d.grant(1)
		if k == 0 {
			d.Warning = fmt.Sprintf("shards that wait for %s: %d; they go on when shards in flight end "+
				"and leave some (%s)", d.waitFor(), len(waiting)-i, d.limits())
			return false
		}
		a, _ := d.Allowances.Of(n)
		d.send(sending{1, a.Plus(more)}, interval.Range{Lo: n, Hi: n + 1})
	}
	return true
}

// waitFor says what shards wait for.
func (d *decider) waitFor() string {
	switch limit := d.rules.Budget; {
	case limit.MicroUSD <= 0:
		return "tokens of the budget"
	case limit.Tokens <= 0:
		return "dollars of the budget"
	}
	return "tokens or dollars of the budgets"
}

// limits names the run's budgets as its config has them.
func (d *decider) limits() string {
	tokens := fmt.Sprintf("limits.tokens is %d", d.rules.Budget.Tokens)
	dollars := fmt.Sprintf("limits.dollars is %v", d.rules.Budget.USD())
	switch limit := d.rules.Budget; {
	case limit.MicroUSD <= 0:
		return tokens
	case limit.Tokens <= 0:
		return dollars
	}
	return tokens + ", " + dollars
}

// endOverBudget ends a run whose budgets leave nothing.
func (d *decider) endOverBudget() {
	tokens, money := d.budgets()
	switch {
	case tokens.limit > 0 && tokens.spent() >= tokens.limit:
		d.end(ReasonBudget, "the token budget is used up")
	case money.limit > 0 && money.spent() >= money.limit:
		d.end(ReasonBudget, fmt.Sprintf("the budget of $%s is used up (limits.dollars): $%s are spent",
			dollars(d.rules.Budget), dollars(cost.Spend{MicroUSD: money.spent()})))
	}
}

// dollars formats the money of an amount with two decimals; all that it has, if it is less
// than ten cents.
func dollars(s cost.Spend) string {
	decimals := 2
	if s.MicroUSD < 100_000 {
		decimals = -1
	}
	return strconv.FormatFloat(s.USD(), 'f', decimals, 64)
}
