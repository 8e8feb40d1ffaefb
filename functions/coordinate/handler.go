package coordinate

import (
	"context"
	"errors"

	"rollout/events"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// HandleBatch applies a batch of messages, in any order, run by run. It returns the
// receipts of those that are done with, among them the buried ones; the others
// are to be delivered again.
func (c *Coordinator) HandleBatch(ctx context.Context, ms []queue.Message) (done []string) {
	byRun := map[identity.RunID][]int{}
	evs, causes := make([]run.Event, len(ms)), make([]events.Envelope, len(ms))
	for i, m := range ms {
		cause, id, e, err := c.decode(ctx, m)
		switch {
		case fault.Is(err, fault.Invalid):
			if c.deadLetter(ctx, m, err) {
				done = append(done, m.Receipt)
			}
		case err != nil:
			c.warn(ctx, "event not taken", "message", m.ID, "error", err)
		default:
			e.MessageIndex = i
			evs[i], causes[i] = e, cause
			byRun[id] = append(byRun[id], i)
		}
	}
	for id, members := range byRun {
		ctx := host.WithCause(ctx, fewestHops(causes, members))
		done = append(done, c.applyMessages(ctx, id, ms, evs, members)...)
	}
	return done
}

// fewestHops is the cause with the fewest hops: what one event begins anew, the
// others of its batch do not end.
func fewestHops(causes []events.Envelope, members []int) events.Envelope {
	least := causes[members[0]]
	for _, m := range members[1:] {
		if causes[m].Hops < least.Hops {
			least = causes[m]
		}
	}
	return least
}

// applyMessages applies one run's messages of a batch.
func (c *Coordinator) applyMessages(ctx context.Context, id identity.RunID, ms []queue.Message, evs []run.Event, members []int) (done []string) {
	mine := make([]run.Event, len(members))
	for i, m := range members {
		mine[i] = evs[m]
	}
	rejected, err := c.Apply(ctx, id, mine)
	if err != nil {
		c.warn(ctx, "events not applied", "run", id, "events", len(mine), "error", err)
		if !errors.Is(err, host.ErrNoRun) && !errors.Is(err, events.ErrTooManyHops) {
			return nil
		}
		// The run may have been cleaned up, and nobody is to blame; or functions
		// feed each other: what was left to do, a timer's ring has done.
		for _, m := range members {
			if c.deadLetter(ctx, ms[m], err) {
				done = append(done, ms[m].Receipt)
			}
		}
		return done
	}
	bad := map[int]bool{}
	for _, e := range rejected {
		if e.MessageIndex == fromSelf || bad[e.MessageIndex] {
			continue
		}
		bad[e.MessageIndex] = true
		m := ms[e.MessageIndex]
		if c.deadLetter(ctx, m, fault.New(fault.Invalid, "event %q of shard %d is not of run %s's plan", e.Kind, e.Shard, id)) {
			done = append(done, m.Receipt)
		}
		c.drainSender(ctx, m)
	}
	for _, m := range members {
		if !bad[m] {
			done = append(done, ms[m].Receipt)
		}
	}
	return done
}

// deadLetter puts a message among the dead letters; false leaves it to come back.
func (c *Coordinator) deadLetter(ctx context.Context, m queue.Message, why error) bool {
	if err := c.DeadLetter(ctx, host.CoordinateQueue, m, why); err != nil {
		c.warn(ctx, "message not buried", "message", m.ID, "error", err)
		return false
	}
	return true
}

// drainSender drains the worker that reported what no run of the plan can have
// caused: it follows another protocol.
func (c *Coordinator) drainSender(ctx context.Context, m queue.Message) {
	_, p, _ := events.Decode(m.Body)
	d, ok := p.(events.ShardDone)
	if !ok || d.Worker == "" {
		return
	}
	_, err := host.Update(ctx, c.Docs, record.WorkerKey(d.Worker), func(w record.WorkerMark, _ bool) (record.WorkerMark, bool, error) {
		w, first := w.Drain("it reported a shard that was never dispatched")
		return w, first, nil
	})
	if err != nil {
		c.warn(ctx, "worker not marked", "worker", d.Worker, "error", err)
	}
}

// decode turns a message into an event of a run, and tells what caused it.
// Invalid is for dead letters.
func (c *Coordinator) decode(ctx context.Context, m queue.Message) (events.Envelope, identity.RunID, run.Event, error) {
	cause, p, err := events.Decode(m.Body)
	if err != nil {
		return cause, "", run.Event{}, fault.WithKind(fault.Invalid, err, "decode event")
	}
	id, e, err := c.event(ctx, p)
	return cause, id, e, err
}

// event is what a payload says to the run's state machine.
func (c *Coordinator) event(ctx context.Context, p events.Payload) (identity.RunID, run.Event, error) {
	switch p := p.(type) {
	case events.ShardDone:
		return identity.RunID(p.Run), run.Event{Kind: run.ShardDone, Shard: p.Shard, Counts: shard.Counts(p.Counts)}, nil
	case events.ShardLost:
		return identity.RunID(p.Run), run.Event{Kind: run.ShardLost, Shard: p.Shard, Generation: p.Generation, Why: p.Reason}, nil
	case events.ShardReleased:
		return identity.RunID(p.Run), run.Event{Kind: run.ShardReleased, Shard: p.Shard}, nil
	case events.InputMissing:
		return identity.RunID(p.Run), run.Event{Kind: run.InputMissing, Why: p.Reason}, nil
	case events.ModelMissing:
		return identity.RunID(p.Run), run.Event{Kind: run.InputMissing, Why: p.Reason}, nil
	case events.InputChanged:
		return identity.RunID(p.Run), run.Event{Kind: run.InputChanged, Why: p.Reason}, nil
	case events.PlanAdvanced:
		return identity.RunID(p.Run), run.Event{Kind: run.Reevaluate}, nil
	case events.ControlChanged:
		return identity.RunID(p.Run), run.Event{Kind: run.Reevaluate}, nil
	case events.Wakeup:
		return identity.RunID(p.Run), run.Event{Kind: run.Wakeup}, nil
	case events.Finalized:
		return c.finalized(ctx, p)
	}
	return "", run.Event{}, fault.New(fault.Invalid, "event %T is not for coordinate", p)
}

// finalized reads the exact counts from the summary, which decides.
func (c *Coordinator) finalized(ctx context.Context, p events.Finalized) (identity.RunID, run.Event, error) {
	id := identity.RunID(p.Run)
	var s record.Summary
	err := input.ReadJSON(ctx, c.Blobs, record.OutputKey(id, record.SummaryFile), &s)
	if fault.Is(err, fault.NotFound) {
		return "", run.Event{}, fault.New(fault.Invalid, "run %s is said to be finalized but has no summary", id)
	}
	if err != nil {
		return "", run.Event{}, err
	}
	return id, run.Event{Kind: run.Finalized, Counts: shard.Counts{OK: int(s.Completed), Failed: int(s.Failed), ByClass: s.FailedByClass,
		PromptTokens: s.PromptTokens, CompletionTokens: s.CompletionTokens, WastedTokens: s.WastedTokens}}, nil
}

// warn logs a warning, unless the process is ending: then calls are cut
// off, and what they were about is delivered again.
func (c *Coordinator) warn(ctx context.Context, what string, args ...any) {
	if ctx.Err() == nil {
		c.Log.WarnContext(ctx, what, args...)
	}
}
