package run

import (
	"time"

	"rollout/shared/core/blame"
)

// pause starts a pause of a run that dispatches. own says that the step itself
// found the reason, so that control/<run> must be changed.
func (d *decider) pause(why string, own bool) {
	if !d.Phase.dispatches() {
		return
	}
	d.startPause(why)
	if own {
		d.effect(Effect{Kind: SetPause, Why: d.Message})
	}
}

func (d *decider) startPause(why string) {
	d.Phase, d.Message = Pausing, clip(why)
	d.startGrace(d.now)
}

// end starts the end, unless an earlier reason has done so. It freezes the
// frontier: finalize writes error rows for every item beyond.
func (d *decider) end(why Reason, message string) {
	if d.Phase == Ending || d.Phase == Finalizing || d.Phase.Ended() {
		return
	}
	d.Phase, d.Reason, d.Message = Ending, why, clip(message)
	d.FrozenFrontier = d.NextShard
	d.startGrace(d.now)
	if d.world.DesiredEnd == "" {
		d.effect(Effect{Kind: SetEnd, Why: string(why)})
	}
}

// startGrace starts the grace of holders at a time, unless it has started later. They
// count it from when they learn of the stop, and their heartbeats show its end later.
// Settle covers both delays.
func (d *decider) startGrace(at time.Time) {
	if at.After(d.StopRequestedAt) {
		d.StopRequestedAt, d.GraceUntil = at, at.Add(d.rules.Grace+d.rules.Settle)
	}
}

// applyControl acts on the desired state, once for each sequence.
func (d *decider) applyControl() {
	w := d.world
	if w.DesiredEnd != "" {
		d.end(w.DesiredEnd, w.ControlReason)
	}
	if w.Sequence <= d.Control {
		return
	}
	missed := w.Sequence-d.Control > 1
	d.Control = w.Sequence
	stopped := d.Phase == Pausing || d.Phase == Paused || d.Phase == Interrupted
	if d.Phase == Pausing && w.DesiredPause || d.Phase == Ending && w.DesiredEnd != "" {
		d.startGrace(d.toldAt())
	}
	switch {
	case w.DesiredPause && (d.Phase == Paused || d.Phase == Interrupted):
		d.startPause(w.ControlReason) // paused again: workers that continued in between get a new grace
	case w.DesiredPause:
		d.pause(w.ControlReason, false)
	case stopped, missed && d.Phase.dispatches(): // a pause that was resumed between two steps may have lost messages
		d.resume()
	}
}

// toldAt is when holders could learn of the stop that control/<run> desires: long after
// the step that decided it, if a coordinator crashed between. A writer whose clock is
// ahead does not delay the stop.
func (d *decider) toldAt() time.Time {
	at := d.world.ControlAt.UTC().Truncate(time.Millisecond)
	if at.After(d.now) {
		return d.now
	}
	return at
}

// resume lets every open shard be sent again: its holder released it, and workers
// acknowledge the messages of a paused run without a claim.
func (d *decider) resume() {
	d.Phase, d.Message, d.StopRequestedAt, d.GraceUntil = Running, "", time.Time{}, time.Time{}
	d.FailedStreak = 0 // what failed before the pause is known
	if d.rules.FailedShare > 0 {
		d.ShareAccepted = d.outcomes()
	}
	if d.Shards == 0 {
		d.Phase = Planning
	}
	d.resumed = true
}

// refused pauses a run of which no request is answered. The worker that reports it knows
// what it met itself: its own server may be at fault while another worker has answers.
func (d *decider) refused(e Event) {
	resumedSince := e.Control < d.Control
	if !d.Phase.dispatches() || resumedSince || d.now.Sub(e.AnsweredAt) < blame.WithoutAnswer {
		return
	}
	d.startPause(e.Why)
	d.effect(Effect{Kind: SetPause, Why: d.Message, Refused: e.Outcome})
}

// allAcknowledged reports whether every living worker has applied the newest
// control sequence, so that no holder still finishes a shard of the run.
func (d *decider) allAcknowledged() bool {
	return d.world.Unacknowledged == 0 && d.Control == d.world.Sequence &&
		!d.now.Before(d.StopRequestedAt.Add(d.rules.Settle))
}

// settleEnding seals the open shards when no holder will commit them any more,
// and asks for the output files when all shards that were sent are done.
func (d *decider) settleEnding() {
	open := d.openBelow(d.FrozenFrontier)
	if len(open) > 0 {
		if d.now.Before(d.GraceUntil) && !(d.allAcknowledged() && d.world.DesiredEnd != "") {
			return
		}
		for _, r := range open {
			d.effect(Effect{Kind: Seal, Range: &r, Why: string(d.Reason)})
		}
		return
	}
	// While planning continues, wait: its items belong to the run too.
	if d.Complete || d.Growing || d.world.PlanProblem != "" {
		d.Phase, d.Retries, d.FinalizingAt = Finalizing, 0, d.now
		d.effect(Effect{Kind: Finalize})
	}
}
