package run

import (
	"maps"
	"time"

	"rollout/shared/engine/interval"
	"rollout/shared/engine/schedule"
	"rollout/shared/engine/shard"
)

// Step decides. The state's own Effects are taken as performed and replaced.
// rejected are the events that no run of this plan can have caused: dead
// letters, whose sender follows another protocol.
func Step(s State, w World, r Rules, events []Event, now time.Time) (next State, rejected []Event) {
	s.Effects = nil
	s.Counts.ByClass = maps.Clone(s.Counts.ByClass)
	s.Done.Set = s.Done.Set.Clone()
	s.Steps++
	s.SavedAt = now.UTC()
	if s.Phase.Ended() {
		return s, nil
	}
	d := decider{State: s, world: w, rules: r, now: now.UTC()}
	d.Shards, d.Items, d.Complete = max(d.Shards, w.Shards), max(d.Items, w.Items), d.Complete || w.Complete
	for _, e := range events {
		if !d.take(e) {
			rejected = append(rejected, e)
		}
	}
	d.obeyControl()
	d.heedPlan()
	d.checkLimits()
	d.settle()
	d.dispatch()
	return d.State, rejected
}

// decider is one step in the making.
type decider struct {
	State
	world World
	rules Rules
	now   time.Time
	look  bool // somebody asks to look now
}

func (d *decider) effect(e Effect) { d.Effects = append(d.Effects, e) }

// heedPlan reacts to a plan that can't go on. A problem from before the last
// resume is old news: planning was asked to try again.
func (d *decider) heedPlan() {
	w := d.world
	if w.Problem == "" || d.Complete || w.ProblemAt < d.Control {
		return
	}
	if w.Ends != "" {
		d.end(w.Ends, w.Problem)
	} else {
		d.pause(w.Problem, true)
	}
}

// take applies one event; false rejects it.
func (d *decider) take(e Event) bool {
	switch e.Kind {
	case ShardDone:
		return d.done(e)
	case ShardLost, Released:
		if e.Shard < 0 || e.Shard >= d.Next {
			return false
		}
		d.resend(e)
	case InputMissing:
		d.pause(e.Why, true)
	case InputChanged:
		d.end(ReasonChanged, e.Why)
	case Look:
		d.look = true
	case Finalized:
		if d.Phase == Finalizing {
			d.Counts = e.Counts
			d.Phase, d.EndedAt = d.Reason.end(e.Counts.Failed), d.now
		}
	}
	return true
}

func (d *decider) done(e Event) bool {
	// Only what was dispatched can be done: a send is saved before it is made.
	fresh, _, err := d.State.Done.Add(e.Shard, d.Next)
	if err != nil {
		return false
	}
	d.InFlight.Done(e.Shard)
	if !fresh {
		return true
	}
	d.count(e.Counts)
	if d.rules.FailFast && e.Counts.Failed > 0 {
		d.end(ReasonFast, "an item failed and the run is to fail fast")
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
		d.Streak = 0
	case c.Failed > 0:
		d.Streak++
	}
}

// resend sends a lost or released shard again with the next generation. News
// of an older generation is stale; a paused or ending run sends nothing, and
// resuming sends every open shard anyway.
func (d *decider) resend(e Event) {
	g, known := d.InFlight.Generation(e.Shard)
	if d.State.Done.Set.Has(e.Shard) || !d.Phase.dispatches() {
		return
	}
	if known && e.Kind == ShardLost && e.Generation != g {
		return
	}
	d.send(interval.Range{Lo: e.Shard, Hi: e.Shard + 1}, g+1)
}

func (d *decider) send(r interval.Range, generation int) {
	d.InFlight.Sent(r, generation, d.now)
	if n := len(d.Effects); n > 0 {
		last := &d.Effects[n-1]
		if last.Act == Send && last.Generation == generation && last.Range.Hi == r.Lo {
			last.Range.Hi = r.Hi
			return
		}
	}
	d.effect(Effect{Act: Send, Range: &r, Generation: generation})
	if d.StartedAt.IsZero() {
		d.StartedAt = d.now
	}
}

// pause starts a pause. own says that it is coordinate's own finding, which
// control does not know yet.
func (d *decider) pause(why string, own bool) {
	if !d.Phase.dispatches() {
		return
	}
	d.Phase, d.Message, d.GraceUntil = Pausing, why, d.now.Add(d.rules.Grace)
	if own {
		d.effect(Effect{Act: SetPause, Why: why})
	}
}

// end starts the end. The dispatched frontier is frozen: finalize answers for
// every item beyond.
func (d *decider) end(why Reason, message string) {
	if d.Phase == Ending || d.Phase == Finalizing {
		return
	}
	d.Phase, d.Reason, d.Message = Ending, why, message
	d.Frozen, d.GraceUntil = d.Next, d.now.Add(d.rules.Grace)
	d.effect(Effect{Act: SetEnd, Why: string(why)})
}

func (d *decider) obeyControl() {
	w := d.world
	if w.End != "" {
		d.end(w.End, w.Why)
	}
	if w.Sequence <= d.Control {
		return
	}
	d.Control = w.Sequence
	switch {
	case w.Pause:
		d.pause(w.Why, false)
	case d.Phase == Pausing || d.Phase == Paused || d.Phase == Interrupted:
		d.resume()
	}
}

// resume sends every open shard again: holders released theirs, and messages
// of a paused run were acknowledged unread.
func (d *decider) resume() {
	d.Phase, d.Message, d.GraceUntil = Running, "", time.Time{}
	if d.Shards == 0 {
		d.Phase = Planning
	}
	for _, r := range d.Open() {
		for n := r.Lo; n < r.Hi; n++ {
			g, _ := d.InFlight.Generation(n)
			d.send(interval.Range{Lo: n, Hi: n + 1}, g+1)
		}
	}
	if !d.Complete {
		d.effect(Effect{Act: Replan})
	}
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
}

// allDone reports whether every planned shard is in and none will come.
func (d *decider) allDone() bool { return d.Complete && d.State.Done.Frontier() >= d.Shards }

// settle moves on what waits for something.
func (d *decider) settle() {
	switch d.Phase {
	case Planning, Running, Pausing, Paused, Interrupted:
		if d.allDone() {
			d.Phase, d.Reason, d.Frozen = Finalizing, ReasonDone, d.Shards
			d.effect(Effect{Act: Finalize})
			return
		}
	case Ending:
		d.settleEnding()
	case Finalizing:
		if d.look { // a lost request or a crashed finalize
			d.effect(Effect{Act: Finalize})
		}
	}
	if d.Phase == Pausing {
		switch {
		case d.world.Unacknowledged == 0 && d.Control == d.world.Sequence && d.world.Pause:
			d.Phase = Paused
		case d.now.After(d.GraceUntil):
			d.Phase = Interrupted
		}
	}
}

func (d *decider) settleEnding() {
	open := d.State.Done.Set.Missing(interval.Range{Lo: 0, Hi: d.Frozen})
	if len(open) > 0 {
		if d.now.Before(d.GraceUntil) {
			return
		}
		for _, r := range open {
			d.effect(Effect{Act: Seal, Range: &r, Why: string(d.Reason)})
		}
		return
	}
	// The items of a plan still being made belong to the run too.
	if d.Complete || d.world.Problem != "" {
		d.Phase = Finalizing
		d.effect(Effect{Act: Finalize})
	}
}

func (d *decider) dispatch() {
	if !d.Phase.dispatches() || d.Shards == 0 {
		return
	}
	d.Phase = Running
	window := schedule.Window(d.world.Pool, d.State.Done.Buffered(), len(d.State.Done.Set.Ranges()))
	limit := &schedule.Cap{InFlight: d.InFlight.Len(), Max: window}
	for _, r := range schedule.Pick(d.Next, d.Shards, window, nil, limit) {
		d.send(r, 0)
		d.Next = r.Hi
	}
}
