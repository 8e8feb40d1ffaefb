package run

import (
	"fmt"
	"maps"
	"time"

	"rollout/shared/core/interval"
	"rollout/shared/core/shard"
)

// Step decides. The state's own Effects are taken as performed and replaced.
// rejected are the events that no run of this plan can have caused: dead
// letters, whose sender follows another protocol.
//
// Events are only noted at first; what is sent is decided last, when it is
// known whether the run goes on. So a step that pauses or ends a run sends
// nothing, whatever else came with the news.
func Step(s State, w Observed, r Rules, events []Event, now time.Time) (next State, rejected []Event) {
	now = now.UTC().Truncate(time.Millisecond) // what a saved state keeps of a time
	before := s.SavedAt
	s.Effects = nil
	s.Counts.ByClass = maps.Clone(s.Counts.ByClass)
	s.Done.Set = s.Done.Set.Clone()
	s.InFlight = s.InFlight.Clone()
	s.Steps++
	s.SavedAt = now
	if s.Phase.Ended() {
		return s, nil
	}
	d := decider{State: s, world: w, rules: r, now: now}
	d.Deadline = r.Deadline
	if d.Phase != Finalizing { // else its files are being made of the plan as it was
		if w.Shards > d.Shards || w.Complete && !d.Complete { // planning gets on
			d.Retries = 0
		}
		d.Shards, d.Items, d.Complete = max(d.Shards, w.Shards), max(d.Items, w.Items), d.Complete || w.Complete
	}
	for _, e := range events {
		if !d.take(e) {
			rejected = append(rejected, e)
		}
	}
	if len(rejected) > 0 && r.FailFast {
		d.end(ReasonFailFast, "an event named a shard that was never sent and the run is to fail fast")
	}
	d.applyControl()
	d.applyPlan()
	d.checkLimits()
	d.settle()
	d.requestPlan(before)
	d.dispatch()
	d.InFlight.MergeDue(now)
	return d.State, rejected
}

// decider is one step in the making.
type decider struct {
	State
	world            Observed
	rules            Rules
	now              time.Time
	retryOutstanding bool         // what is outstanding is to be asked for again
	resumed          bool         // every open shard is to be sent again
	toResend         interval.Set // shards to be sent again
}

func (d *decider) effect(e Effect) { d.Effects = append(d.Effects, e) }

// applyPlan reacts to a plan that can't go on. A problem from before the last
// resume is old news: planning was asked to try again.
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

// take applies one event; false rejects it.
func (d *decider) take(e Event) bool {
	switch e.Kind {
	case ShardDone:
		return d.done(e)
	case ShardLost, ShardReleased:
		return d.lost(e)
	case InputMissing:
		d.pause(e.Why, true)
	case InputChanged:
		d.end(ReasonInputChanged, e.Why)
	case Wakeup:
		d.retryOutstanding = true
	case Finalized:
		if d.Phase == Finalizing {
			d.Counts = e.Counts
			d.Phase, d.EndedAt = d.Reason.Phase(e.Counts.Failed), d.now
		}
	}
	return true
}

func (d *decider) done(e Event) bool {
	// Only what was dispatched can be done: a send is saved before it is made.
	fresh, _, err := d.State.Done.Add(e.Shard, d.NextShard)
	if err != nil {
		return false
	}
	d.InFlight.MarkDone(e.Shard)
	if !fresh {
		return true
	}
	d.count(e.Counts)
	if d.rules.FailFast && e.Counts.Failed > 0 {
		d.end(ReasonFailFast, "an item failed and the run is to fail fast")
	}
	return true
}

func (d *decider) count(c shard.Counts) {
	t := &d.Counts
	t.OK += c.OK
	t.Failed += c.Failed
	t.PromptTokens += c.PromptTokens
	t.CompletionTokens += c.CompletionTokens
	t.WastedTokens += c.WastedTokens
	for k, n := range c.ByClass {
		if t.ByClass == nil {
			t.ByClass = map[string]int{}
		}
		t.ByClass[k] += n
	}
	switch {
	case c.OK > 0:
		d.FailedStreak = 0
	case c.Failed > 0:
		d.FailedStreak++
	}
}

// lost notes a lost or released shard to be sent again. News of another
// generation than the one in flight is stale.
func (d *decider) lost(e Event) bool {
	if e.Shard < 0 || e.Shard >= d.NextShard {
		return false
	}
	g, known := d.InFlight.Generation(e.Shard)
	if known && e.Kind == ShardLost && e.Generation != g {
		return true
	}
	d.toResend.Add(e.Shard)
	return true
}

// pause starts a pause. own says that it is coordinate's own finding, which
// control does not know yet.
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
	d.startGrace()
}

// end starts the end. The dispatched frontier is frozen: finalize answers for
// every item beyond.
func (d *decider) end(why Reason, message string) {
	if d.Phase == Ending || d.Phase == Finalizing || d.Phase.Ended() {
		return
	}
	d.Phase, d.Reason, d.Message = Ending, why, clip(message)
	d.FrozenFrontier = d.NextShard
	d.startGrace()
	if d.world.DesiredEnd == "" {
		d.effect(Effect{Kind: SetEnd, Why: string(why)})
	}
}

// startGrace gives holders their grace. It counts from when they learn of the
// stop, and shows a heartbeat after it is over: Settle pays for both.
func (d *decider) startGrace() {
	d.StopRequestedAt, d.GraceUntil = d.now, d.now.Add(d.rules.Grace+d.rules.Settle)
}

// applyControl acts on what control desires, once for each sequence.
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
	waits := d.Phase == Pausing || d.Phase == Paused || d.Phase == Interrupted
	switch {
	case w.DesiredPause && (d.Phase == Paused || d.Phase == Interrupted):
		d.startPause(w.ControlReason) // asked again: those who went on meanwhile get a new grace
	case w.DesiredPause:
		d.pause(w.ControlReason, false)
	case waits, missed && d.Phase.dispatches(): // a pause that came and went may have cost messages
		d.resume()
	}
}

// resume sends every open shard again: holders released theirs, and messages
// of a paused run were acknowledged unread.
func (d *decider) resume() {
	d.Phase, d.Message, d.StopRequestedAt, d.GraceUntil = Running, "", time.Time{}, time.Time{}
	d.FailedStreak = 0 // what failed before the pause is known
	if d.Shards == 0 {
		d.Phase = Planning
	}
	d.resumed = true
}

func (d *decider) checkLimits() {
	if d.Reason != "" || d.allDone() {
		return
	}
	if used := d.Counts.PromptTokens + d.Counts.CompletionTokens; d.rules.Tokens > 0 && used >= d.rules.Tokens {
		d.end(ReasonBudget, "the token budget is used up")
	}
	if !d.rules.Deadline.IsZero() && !d.now.Before(d.rules.Deadline) {
		d.end(ReasonExpired, "the deadline is over")
	}
	if limit := d.rules.FailedShards; limit > 0 && d.FailedStreak >= limit {
		d.pause(fmt.Sprintf("%d shards in a row had no answered item (limits.failed_shards_in_a_row is %d): "+
			"see why their items failed, then resume the run", d.FailedStreak, limit), true)
	}
}

// allDone reports whether every planned shard is in and none will come.
func (d *decider) allDone() bool { return d.Complete && d.State.Done.Frontier() >= d.Shards }

// settle moves on what waits for something.
func (d *decider) settle() {
	switch d.Phase {
	case Planning, Running, Pausing, Paused, Interrupted:
		if d.allDone() {
			d.Phase, d.Reason, d.FrozenFrontier = Finalizing, ReasonDone, d.Shards
			d.Message, d.Retries = "", 0
			d.effect(Effect{Kind: Finalize})
			return
		}
	case Ending:
		d.settleEnding()
	case Finalizing:
		if d.retryOutstanding { // a lost request or a crashed finalize
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

// allAcknowledged reports whether every living worker has acted on the newest control:
// nobody holds a shard of the run that it would still finish.
func (d *decider) allAcknowledged() bool {
	return d.world.Unacknowledged == 0 && d.Control == d.world.Sequence && !d.now.Before(d.StopRequestedAt.Add(d.rules.Settle))
}

func (d *decider) settleEnding() {
	open := d.State.Done.Set.Missing(interval.Range{Lo: 0, Hi: d.FrozenFrontier})
	if len(open) > 0 {
		if d.now.Before(d.GraceUntil) && !(d.allAcknowledged() && d.world.DesiredEnd != "") {
			return
		}
		for _, r := range open {
			d.effect(Effect{Kind: Seal, Range: &r, Why: string(d.Reason)})
		}
		return
	}
	// The items of a plan still being made belong to the run too.
	if d.Complete || d.world.PlanProblem != "" {
		d.Phase, d.Retries = Finalizing, 0
		d.effect(Effect{Kind: Finalize})
	}
}

// planSilence is how long a run must have been left alone before a ring takes
// its unfinished plan for stuck. Planning announces its progress; the silence
// keeps it and coordinate from feeding each other (I8).
const planSilence = 2 * time.Minute

// requestPlan asks planning to go on, on resuming and when it has fallen silent.
// before is when the run last took a step.
func (d *decider) requestPlan(before time.Time) {
	if d.Complete || !d.Phase.dispatches() && d.Phase != Ending {
		return
	}
	silent := !before.IsZero() && d.now.Sub(before) >= planSilence
	switch {
	case d.resumed:
		d.Retries = 0
	case d.retryOutstanding && silent:
		d.Retries++
	}
	if d.resumed || d.retryOutstanding && silent {
		d.effect(Effect{Kind: Replan})
	}
}
