package run

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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
	switch {
	case d.world.KeptUntil > 0:
		d.sendTouched()
	case d.maySkip():
		d.scan()
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
	if limit := d.rules.Constraints.MaxInFlight; limit > 0 {
		window = min(window, limit)
	}
	window = min(window, d.affordable())
	r := interval.Range{Lo: d.NextShard, Hi: min(d.Shards, d.NextShard+window-d.InFlight.Len())}
	if r.Len() > 0 {
		d.send(0, r)
		d.NextShard = r.Hi
	}
}

// resendLost sends each recorded shard once, with its next generation. After a
// resume these are all open shards.
func (d *decider) resendLost() {
	again := d.toResend.Ranges()
	if d.resumed {
		again = d.Open()
	}
	byGeneration := map[int]*interval.Set{}
	for _, r := range again {
		for n := r.Lo; n < r.Hi; n++ {
			if d.State.Done.Set.Has(n) {
				continue
			}
			g, _ := d.InFlight.Generation(n)
			g = schedule.NextGeneration(g)
			if byGeneration[g] == nil {
				byGeneration[g] = &interval.Set{}
			}
			byGeneration[g].Add(n)
		}
	}
	for _, g := range slices.Sorted(maps.Keys(byGeneration)) {
		d.send(g, byGeneration[g].Ranges()...)
	}
}

// send adds the effects that send the shards of the ranges, and marks them in flight.
func (d *decider) send(generation int, ranges ...interval.Range) {
	d.InFlight.MarkSent(generation, d.now, ranges...)
	for _, r := range ranges {
		d.effect(Effect{Kind: Send, Range: &r, Generation: generation})
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
