package run

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"rollout/shared/core/cost"
	"rollout/shared/core/interval"
	"rollout/shared/core/schedule"
	"rollout/shared/text"
)

// dispatch sends lost shards again, and then new shards up to the window.
func (d *decider) dispatch() {
	d.Warning = ""
	if !d.Phase.dispatches() {
		return
	}
	d.resendLost()
	if d.Shards == 0 {
		return
	}
	d.Phase = Running
	if d.rules.Constraints.MaxInFlight > 0 {
		d.MostRequests = max(d.MostRequests, d.inFlightLimit(d.world.Requests))
	}
	switch {
	case !d.raise():
	case d.maySkip():
		d.scan()
	case d.world.KeptUntil > 0:
		d.sendTouched()
	default:
		d.sendNext()
	}
	if d.unfinished {
		d.effect(Effect{Kind: Continue})
	}
}

// sendNext sends new shards in order up to the window, in a run that skips none.
func (d *decider) sendNext() {
	buffered, ranges := d.State.Done.Buffered(), len(d.State.Done.Set.Ranges())
	window := schedule.Window(d.world.Pool, buffered, ranges)
	if full := schedule.Window(d.world.Pool, 0, 0); window < full {
		d.Warning = fmt.Sprintf("%d finished shards wait for shard %d: at most %d are in flight, not %d",
			buffered, d.State.Done.Frontier(), window, full)
	}
	window = d.inFlightLimit(d.share(window))
	d.sendNew(interval.Range{Lo: d.NextShard, Hi: min(d.mayBeSent(), d.NextShard+window-d.InFlight.Len())})
}

// share bounds a window to the run's share of its pools.
func (d *decider) share(window int) int {
	return d.world.Sharing.Window(window, d.world.Pool, d.InFlight)
}

// inFlightLimit bounds a window to what the run's constraints admit.
func (d *decider) inFlightLimit(window int) int {
	if limit := d.rules.Constraints.MaxInFlight; limit > 0 {
		return min(window, limit)
	}
	return window
}

// sendNew sends the shards of r, which begins with NextShard, as far as the budgets
// allow.
func (d *decider) sendNew(r interval.Range) {
	if r.Len() <= 0 {
		return
	}
	n, allowance := d.grant(r.Len())
	if n == 0 {
		return
	}
	r.Hi = r.Lo + n
	d.send(sending{allowance: allowance}, r)
	d.NextShard = r.Hi
}

// resendLost sends each recorded shard once, with its next generation and its present
// allowance. After a resume these are all open shards. A shard that waits for a larger
// allowance is left to raise.
func (d *decider) resendLost() {
	again := d.toResend.Ranges()
	if d.resumed {
		again = d.Open()
	}
	sets, budgeted := map[sending]*interval.Set{}, !d.rules.Budget.IsZero()
	for _, r := range again {
		for n := r.Lo; n < r.Hi; n++ {
			if d.State.Done.Set.Has(n) {
				continue
			}
			a, ok := d.Allowances.Of(n)
			if !ok && budgeted { // it was sent by a version without allowances
				d.wait(n, cost.Spend{})
			}
			if budgeted && (!ok || a.Waits) {
				continue
			}
			g, _ := d.InFlight.Generation(n)
			s := sending{schedule.NextGeneration(g), a.Spend}
			if sets[s] == nil {
				sets[s] = &interval.Set{}
			}
			sets[s].Add(n)
		}
	}
	order := slices.SortedFunc(maps.Keys(sets), func(a, b sending) int {
		return cmp.Or(a.generation-b.generation, cmp.Compare(a.allowance.Tokens, b.allowance.Tokens),
			cmp.Compare(a.allowance.MicroUSD, b.allowance.MicroUSD))
	})
	for _, s := range order {
		d.send(s, sets[s].Ranges()...)
	}
}

// sending is what the messages of shards say that are sent together: their generation,
// and how much each shard may spend in all its attempts, zero in a run without a budget.
type sending struct {
	generation int
	allowance  cost.Spend
}

// send adds the effects that send the shards of the ranges, and marks them in flight.
// Shards that were sent before are urgent, because the commit frontier waits for them.
// So are all of a run that shares its pool: they must not wait behind what another run
// sent while it had the pool alone.
func (d *decider) send(s sending, ranges ...interval.Range) {
	d.InFlight.MarkSent(s.generation, d.now, ranges...)
	urgent := s.generation > 0 || d.world.Sharing.Shared
	d.SentAlone = d.SentAlone || !urgent && len(ranges) > 0
	for _, r := range ranges {
		if !s.allowance.IsZero() {
			d.Allowances.set(Allowance{Range: r, Spend: s.allowance})
		}
		d.effect(Effect{Kind: Send, Range: &r, Generation: s.generation, Allowance: s.allowance, Urgent: urgent})
	}
	if len(ranges) > 0 && d.StartedAt.IsZero() {
		d.StartedAt = d.now
	}
}

// maxText bounds a message in the state, in bytes, so that a long error does not
// outgrow the document.
const maxText = 256

// clip returns s as valid UTF-8, cut to maxText bytes and "…".
func clip(s string) string {
	return text.Truncate(strings.ToValidUTF8(s, "\uFFFD"), maxText, "…")
}
