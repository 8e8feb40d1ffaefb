package run

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"rollout/shared/core/interval"
	"rollout/shared/core/schedule"
)

// Step returns the next state of a run. It takes the saved state s, whose Effects
// have been performed and are replaced, what the documents say now, the run's
// rules, and the events that arrived. It changes none of its arguments.
// rejected are the events that a run with this plan cannot have caused, because
// their sender follows another protocol: they are dead letters. A VariantPruned is
// rejected if the state has no room for it.
//
// Step only records the events at first and decides last what to send, when it
// knows whether the run continues. So a step that pauses or ends a run sends
// nothing, whatever else arrived with that news.
func Step(s State, w Observed, r Rules, events []Event, now time.Time) (next State, rejected []Event) {
	now = now.UTC().Truncate(time.Millisecond) // the precision of a saved state
	before := s.SavedAt
	s.Effects = nil
	s.Counts.ByClass = maps.Clone(s.Counts.ByClass)
	s.Counts.Finish = maps.Clone(s.Counts.Finish)
	s.Counts.Machines = maps.Clone(s.Counts.Machines)
	s.Done.Set = s.Done.Set.Clone()
	s.InFlight = s.InFlight.Clone()
	s.Allowances = slices.Clone(s.Allowances)
	s.Roles = cloneRoles(s.Roles)
	s.Gaps = s.Gaps.Clone()
	s.Steps++
	s.SavedAt = now
	if s.Phase.Ended() {
		return s, nil
	}
	d := decider{State: s, world: w, rules: r, now: now, recorded: s.Pruned}
	d.Deadline = r.Deadline
	if d.Phase != Finalizing { // the output files are written from the plan as it was
		if w.Shards > d.Shards || w.Complete && !d.Complete { // planning made progress
			d.Retries = 0
		}
		completes := w.Complete && !d.Complete
		d.Shards, d.Items, d.Complete = max(d.Shards, w.Shards), max(d.Items, w.Items), d.Complete || w.Complete
		d.Growing = w.Growing && !d.Complete
		d.State = d.State.WithRoles(w.Roles)
		if completes {
			d.Counts.Add(w.KeptCounts)
			d.keepRoles(w.KeptRoles)
		}
		d.countLooks()
	}
	for _, e := range events {
		if d.take(e) {
			continue
		}
		rejected = append(rejected, e)
		if r.FailFast && e.Kind != VariantPruned {
			d.end(ReasonFailFast, "an event named a shard that was never sent, and limits.fail_fast is set")
		}
	}
	d.releaseChains()
	d.passPruned()
	d.applyControl()
	d.applyPlan()
	d.checkLimits()
	d.settle()
	d.requestPlan(before)
	d.dispatch()
	d.ControlMicroUSD = d.controlPlane(d.Sent())
	d.InFlight.MergeDue(now)
	d.recordHistory()
	return d.State, rejected
}

// decider is the state during a step, with what the step depends on.
type decider struct {
	State
	world            Observed
	rules            Rules
	now              time.Time
	retryOutstanding bool            // request a missing plan or missing files again
	resumed          bool            // send every open shard again
	toResend         interval.Set    // shards to send again
	finished         []int           // shards that left flight in this step
	recorded         schedule.Pruned // those whose record is written
	unfinished       bool            // the step has looked at as many shards as one step may
}

func (d *decider) effect(e Effect) { d.Effects = append(d.Effects, e) }

// applyPlan pauses or ends a run whose planning cannot continue. A problem from
// before the last resume is ignored: planning was asked to try again.
func (d *decider) applyPlan() {
	w := d.world
	if w.PlanProblem == "" || d.Complete || w.PlanProblemControl < d.Control {
		return
	}
	if w.PlanProblemEnd != "" {
		d.end(w.PlanProblemEnd, w.PlanProblem)
	} else {
		d.pause(w.PlanProblem, true)
	}
}

// take applies one event. It returns false for an event to reject.
func (d *decider) take(e Event) bool {
	switch e.Kind {
	case ShardDone:
		return d.done(e)
	case ShardLost, ShardReleased:
		return d.lost(e)
	case ShardUsedUp:
		d.usedUp(e)
	case ItemFailed:
		d.itemFailed()
	case InputMissing:
		d.pause(e.Why, true)
	case RequestsRefused:
		d.refused(e)
	case InputChanged:
		d.end(ReasonInputChanged, e.Why)
	case VariantPruned:
		return d.prune(e)
	case Wakeup:
		d.retryOutstanding = true
	case Finalized:
		if d.Phase == Finalizing {
			money := d.Counts // that of all shards, which are done
			d.Counts = e.Counts
			d.Counts.Machines, d.Counts.TokenNanoUSD = money.Machines, money.TokenNanoUSD
			d.finalRoles(e.Roles)
			d.Phase, d.EndedAt = d.Reason.Phase(e.Counts, e.RefusedLines), d.now
		}
	}
	return true
}

// done records a Done shard. A repeated event changes nothing.
func (d *decider) done(e Event) bool {
	// Only shards that were sent can be done, as a send is saved before it is
	// performed.
	if d.Skipped.Has(e.Shard) {
		return false
	}
	fresh, _, err := d.State.Done.Add(e.Shard, d.NextShard)
	if err != nil {
		return false
	}
	d.InFlight.MarkDone(e.Shard)
	d.Allowances.remove(interval.Range{Lo: e.Shard, Hi: e.Shard + 1})
	if !fresh {
		return true
	}
	d.finished = append(d.finished, e.Shard)
	d.count(e)
	if d.rules.hasOutput(e.Role) && e.Counts.Failed > e.Counts.KeptFailed {
		d.itemFailed()
	}
	return true
}

// itemFailed ends a run that ends with the first failed item.
func (d *decider) itemFailed() {
	if d.rules.FailFast {
		d.end(ReasonFailFast, "an item failed, and limits.fail_fast is set")
	}
}

// count adds the counts of a shard that is newly done. Of a shard whose role has
// no output, the run's own counts take in the tokens alone. Rows that a child
// keeps from its parent say nothing about the streak of failed shards.
func (d *decider) count(e Event) {
	d.countRole(e)
	c := e.Counts
	own := c
	if !d.rules.hasOutput(e.Role) {
		own = c.TokensOnly()
	}
	own.Machines = own.Machines.Joined() // the state is small, and by kind the summary tells
	d.Counts.Add(own)
	switch {
	case c.OK > c.Kept:
		d.FailedStreak = 0
	case c.Failed > c.KeptFailed:
		d.FailedStreak++
	}
}

// lost records a lost or released shard to send again. A loss of another
// generation than the one in flight is stale.
func (d *decider) lost(e Event) bool {
	if e.Shard < 0 || !d.WasSent(e.Shard) {
		return false
	}
	g, known := d.InFlight.Generation(e.Shard)
	if known && e.Kind == ShardLost && e.Generation != g {
		return true
	}
	if e.Vanished && d.rules.FailFast {
		d.end(ReasonWorkerLost, fmt.Sprintf("the worker that held shard %d vanished, and limits.fail_fast is set", e.Shard))
	}
	d.toResend.Add(e.Shard)
	return true
}

// checkLimits ends or pauses a run that has reached one of its limits.
func (d *decider) checkLimits() {
	if d.Reason != "" || d.allDone() {
		return
	}
	d.endOverBudget()
	if !d.rules.Deadline.IsZero() && !d.now.Before(d.rules.Deadline) {
		d.end(ReasonExpired, "the deadline is over")
	}
	if share := d.failedShare(); d.rules.FailedShare > 0 && share > d.rules.FailedShare {
		d.pause(fmt.Sprintf("%.3g of the items failed (limits.failed_share is %.3g): see why, then resume the run",
			share, d.rules.FailedShare), true)
	}
	if limit := d.rules.FailedShards; limit > 0 && d.FailedStreak >= limit {
		d.pause(fmt.Sprintf("%d shards in a row had no answered item (limits.failed_shards_in_a_row is %d): "+
			"see why their items failed, then resume the run", d.FailedStreak, limit), true)
	}
}

// sharedItems is how many items must have an outcome until the share of failed ones
// counts.
const sharedItems = 100

// outcomes returns how many items the run itself has answered, and how many have
// failed or were pruned.
func (d *decider) outcomes() Outcomes {
	return Outcomes{OK: d.Counts.OK - d.Counts.Kept, Failed: d.Counts.Failed - d.Counts.KeptFailed}
}

// failedShare returns the share of failed items since the run began or was resumed; 0
// while too few have an outcome.
func (d *decider) failedShare() float64 {
	o := d.outcomes()
	failed := o.Failed - d.ShareAccepted.Failed
	all := failed + o.OK - d.ShareAccepted.OK
	if all < sharedItems {
		return 0
	}
	return float64(failed) / float64(all)
}

// allDone reports whether planning has finished and every shard is done.
func (d *decider) allDone() bool { return d.Complete && d.State.Done.Frontier() >= d.Shards }

// settle leaves a phase whose condition is met.
func (d *decider) settle() {
	switch d.Phase {
	case Planning, Running, Pausing, Paused, Interrupted:
		if d.allDone() {
			d.Phase, d.Reason, d.FrozenFrontier = Finalizing, ReasonDone, d.Shards
			d.FinalizingAt = d.now
			d.Message, d.Retries = "", 0
			d.effect(Effect{Kind: Finalize})
			return
		}
	case Ending:
		d.settleEnding()
	case Finalizing:
		if d.retryOutstanding { // the request was lost, or finalize crashed
			d.Retries++
			d.effect(Effect{Kind: Finalize})
		}
	}
	if d.Phase == Pausing {
		switch {
		case d.allAcknowledged() && d.world.DesiredPause:
			d.Phase = Paused
		case d.now.After(d.GraceUntil):
			d.Phase = Interrupted
		}
	}
}

// planSilence is how long ago the last step must be before a Wakeup requests an
// unfinished plan again. Planning announces its progress with an event, so that
// without this delay it and coordinate could feed each other (I8).
const planSilence = 2 * time.Minute

// requestPlan asks planning to continue after a resume, when it was silent for planSilence,
// when the plan may grow, and when a look is due. before is the time of the run's last step.
func (d *decider) requestPlan(before time.Time) {
	looks := d.lookDue()
	if !d.PlanOutstanding() || !d.Phase.dispatches() && d.Phase != Ending {
		return
	}
	silent := !before.IsZero() && d.now.Sub(before) >= planSilence
	switch {
	case d.resumed:
		d.Retries = 0
	case d.retryOutstanding && silent:
		d.Retries++
	}
	if grows := d.growthDue(); grows || looks || d.resumed || d.retryOutstanding && silent {
		d.effect(Effect{Kind: Replan})
	}
}
