package run

import (
	"slices"

	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
)

// maySkip reports whether dispatch must look at the attributes of shards, because a
// constraint may hold some back.
func (s State) maySkip(r Rules) bool {
	return r.Constraints.NeedAttributes() || !s.Skipped.IsZero() || len(s.Pruned) > 0
}

func (d *decider) maySkip() bool { return d.State.maySkip(d.rules) }

// ScanPages returns the pages, in order, whose attributes Step may look at and that
// w.Rows lacks, given the same arguments. Ask again with the pages that it names, until
// it names none: then w.Rows holds those of the shards in flight, without which Step
// sends nothing, and those that say where chains go on. Step goes no further than the
// pages that it has. It names none for a run whose dispatch does not depend on
// attributes.
func ScanPages(s State, w Observed, r Rules, events []Event) []int {
	if !s.maySkip(r) || s.Reason != "" {
		return nil
	}
	var finished []int
	for _, e := range events {
		if _, sent := s.InFlight.Generation(e.Shard); sent && e.Kind == ShardDone {
			finished = append(finished, e.Shard)
		}
	}
	need := s.scanOf(w, r).Needs(s.Gaps, s.InFlight, finished, s.NextShard)
	if n, ok := s.Skipped.Next(0); ok && len(s.Pruned) > 0 {
		for k := n / schedule.PageShards; k*schedule.PageShards < min(n+maxPassed, s.NextShard); k++ {
			if _, known := w.Rows.At(max(n, k*schedule.PageShards)); !known {
				need = append(need, k)
			}
		}
		slices.Sort(need)
		need = slices.Compact(need)
	}
	return need
}

// scanOf returns the scan of the run, but for its window.
func (s State) scanOf(w Observed, r Rules) schedule.Scan {
	return schedule.Scan{Constraints: r.Constraints, Pruned: s.Pruned, Rows: w.Rows, Outline: w.Outline,
		Planned: w.Looks.limit(max(s.Shards, w.Shards))}
}

// releaseChains lets the next shards of chains be sent whose shard in flight became
// done in this step.
func (d *decider) releaseChains() {
	if len(d.finished) > 0 && d.Reason == "" && d.maySkip() {
		d.Gaps.Release(d.finished, d.world.Rows, d.rules.Constraints)
	}
}

// scan sends the shards that the run's constraints admit.
func (d *decider) scan() {
	active := d.InFlight.Len()
	n, allowance := d.grant(max(0, d.share(schedule.Window(d.world.Pool, 0, 0))-active))
	scan := d.scanOf(d.world, d.rules)
	scan.Window, scan.Done = active+n, len(d.State.Done.Set.Ranges())
	p := scan.Pick(&d.Gaps, d.InFlight, d.NextShard)
	for _, r := range p.Kept.Ranges() {
		d.State.Done.Set.AddRange(r)
	}
	d.KeptShards += p.Kept.Len()
	d.send(sending{allowance: allowance}, p.Shards.Ranges()...)
	d.NextShard = p.NextShard
	d.unfinished = d.unfinished || p.More
	if p.Full {
		d.Warning = "shards that wait for others lie in too many places: no further ones are looked at before some are sent"
	}
}

// maxPruned bounds the pruned variants, so that the state stays small.
const maxPruned = 64

// prune stops sending shards of a variant. Those in flight finish. It returns false
// for a variant more than the state can hold: its shards are sent.
func (d *decider) prune(e Event) bool {
	if d.Reason != "" || d.Pruned.HasVariant(e.Variant) {
		return true
	}
	if len(d.Pruned) == maxPruned {
		return false
	}
	v := schedule.PrunedVariant{Variant: e.Variant, From: e.Shard}
	d.Pruned = d.Pruned.With(v)
	d.Gaps.Prune(v)
	d.effect(Effect{Kind: RecordPruned, Pruned: &v, Why: clip(e.Why)})
	return true
}

// maxPassed is how many shards of pruned variants a step passes over.
const maxPassed = 4096

// passPruned passes over the shards at the commit frontier that will not be sent,
// because their variant is pruned: they become done without a result. A variant
// counts once the step before has written its record, which finalize reads.
func (d *decider) passPruned() {
	if len(d.recorded) == 0 || d.Reason != "" {
		return
	}
	for passed := 0; ; passed++ {
		n := d.State.Done.Frontier()
		if n >= d.mayBeSent() || n < d.NextShard && !d.Skipped.Has(n) {
			return
		}
		a, known := d.world.Rows.At(n)
		if !known || passed == maxPassed {
			d.unfinished = true
			return
		}
		if !d.recorded.Has(a.Variant, n) {
			return
		}
		d.State.Done.Set.Add(n)
		d.Skipped.Remove(n)
		d.NextShard = max(d.NextShard, n+1)
		d.PrunedShards++
		d.countPruned(a)
	}
}

// countPruned counts the items of a shard that is passed over. They are neither
// failures in a row nor in the share of failed items: they were never sent.
func (d *decider) countPruned(a schedule.Attributes) {
	n := int(a.Items)
	e := Event{Role: int(a.Role), Counts: shard.Counts{Failed: n, ByClass: map[string]int{string(fault.Pruned): n}}}
	d.countRole(e)
	if !d.rules.hasOutput(e.Role) {
		return
	}
	d.Counts.Add(e.Counts)
	if d.rules.FailedShare > 0 {
		d.ShareAccepted.Failed += n
	}
}
