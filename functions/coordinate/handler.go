package coordinate

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"slices"

	"rollout/events"
	"rollout/shared/core/cost"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/observe"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// HandleBatch applies a batch of messages, in any order, run by run. It returns
// the receipts of the messages to acknowledge, dead letters included. The other
// messages are to be delivered again.
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
			c.warn(ctx, "event can't be read", observe.KeyMessage, m.ID, observe.KeyError, err)
		default:
			e.MessageIndex = i
			evs[i], causes[i] = e, cause
			byRun[id] = append(byRun[id], i)
		}
	}
	// Runs whose documents were saved often wait last, and delay no others.
	ids := slices.SortedFunc(maps.Keys(byRun), func(a, b identity.RunID) int {
		return cmp.Compare(c.pace.rest(a), c.pace.rest(b))
	})
	for _, id := range ids {
		members := byRun[id]
		cause := fewestHops(causes, members)
		ctx := host.WithCause(c.opts.StepContext(ctx, ms[cause]), causes[cause])
		done = append(done, c.applyMessages(ctx, id, ms, evs, members)...)
	}
	return done
}

// fewestHops returns the member whose cause has the fewest hops. A timer's event
// starts a new chain: longer chains in the same batch must not end it.
func fewestHops(causes []events.Envelope, members []int) int {
	least := members[0]
	for _, m := range members[1:] {
		if causes[m].Hops < causes[least].Hops {
			least = m
		}
	}
	return least
}

// applyMessages applies one run's messages of a batch.
// members are the indexes of the run's messages.
func (c *Coordinator) applyMessages(ctx context.Context, id identity.RunID, ms []queue.Message, evs []run.Event,
	members []int) (done []string) {
	mine := make([]run.Event, len(members))
	for i, m := range members {
		mine[i] = evs[m]
	}
	rejected, err := c.Apply(ctx, id, mine)
	if host.IsExpired(err) { // nothing is left to do for its run
		for _, m := range members {
			done = append(done, ms[m].Receipt)
		}
		return done
	}
	if err != nil {
		c.warn(ctx, "events not applied", observe.KeyRun, id, "events", len(mine), observe.KeyError, err)
		if !errors.Is(err, host.ErrNoRun) && !errors.Is(err, events.ErrTooManyHops) {
			return nil
		}
		// Either the run was cleaned up, which is not the sender's fault; or
		// functions feed each other, and the next wake-up of a timer does what is
		// left to do.
		for _, m := range members {
			if c.deadLetter(ctx, ms[m], err) {
				done = append(done, ms[m].Receipt)
			}
		}
		return done
	}
	bad := map[int]bool{}
	for _, e := range rejected {
		if e.Kind == run.VariantPruned {
			c.warn(ctx, "variant not pruned: the run has pruned as many as it can record",
				observe.KeyRun, id, "variant", e.Variant)
		}
		if e.MessageIndex == fromSelf || bad[e.MessageIndex] {
			continue
		}
		bad[e.MessageIndex] = true
		m := ms[e.MessageIndex]
		why := fault.New(fault.Invalid, "event %q names shard %d, which run %s's plan does not have", e.Kind, e.Shard, id)
		if c.deadLetter(ctx, m, why) {
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

// deadLetter moves a message to the dead letters. It returns false if that
// failed: the message is then delivered again.
func (c *Coordinator) deadLetter(ctx context.Context, m queue.Message, why error) bool {
	if err := c.DeadLetter(ctx, host.CoordinateQueue, m, why); err != nil {
		c.warn(ctx, "message not moved to the dead letters", observe.KeyMessage, m.ID, observe.KeyError, err)
		return false
	}
	return true
}

// drainSender asks the worker that reported a shard outside the plan to drain:
// it follows another protocol.
func (c *Coordinator) drainSender(ctx context.Context, m queue.Message) {
	_, p, _ := events.Decode(m.Body)
	d, ok := p.(events.ShardDone)
	if !ok || d.Worker == "" {
		return
	}
	mark := func(w record.WorkerMark, _ bool) (record.WorkerMark, bool, error) {
		w, first := w.Drain("it reported a shard that was never dispatched")
		return w, first, nil
	}
	_, err := host.Update(ctx, c.Docs, record.WorkerKey(d.Worker), mark)
	if err != nil {
		c.warn(ctx, "worker not asked to drain", observe.KeyWorker, d.Worker, observe.KeyError, err)
	}
}

// decode returns the envelope of a message, and the event that it is for a run.
// An Invalid error means that the message is a dead letter.
func (c *Coordinator) decode(ctx context.Context, m queue.Message) (events.Envelope, identity.RunID, run.Event, error) {
	cause, p, err := events.Decode(m.Body)
	if err != nil {
		return cause, "", run.Event{}, fault.WithKind(fault.Invalid, err, "decode event")
	}
	id, e, err := c.event(ctx, p)
	return cause, id, e, err
}

// event translates a payload into an event of the run's state machine.
func (c *Coordinator) event(ctx context.Context, p events.Payload) (identity.RunID, run.Event, error) {
	switch p := p.(type) {
	case events.ShardDone:
		e := run.Event{Kind: run.ShardDone, Shard: p.Shard, Counts: host.ShardCounts(p.Counts)}
		return identity.RunID(p.Run), e, nil
	case events.ShardLost:
		e := run.Event{Kind: run.ShardLost, Shard: p.Shard, Generation: p.Generation, Why: p.Reason,
			Vanished: p.Reason == string(health.HolderDead)}
		return identity.RunID(p.Run), e, nil
	case events.ShardReleased:
		e := run.Event{Kind: run.ShardReleased, Shard: p.Shard,
			Allowance: cost.Spend{Tokens: p.Allowance, MicroUSD: p.AllowanceMicroUSD},
			Spent:     cost.Spend{Tokens: p.Spent, MicroUSD: p.SpentMicroUSD}}
		if !e.Allowance.IsZero() {
			e.Kind = run.ShardUsedUp
		}
		return identity.RunID(p.Run), e, nil
	case events.ItemFailed:
		return identity.RunID(p.Run), run.Event{Kind: run.ItemFailed, Shard: p.Shard}, nil
	case events.InputMissing:
		return identity.RunID(p.Run), run.Event{Kind: run.InputMissing, Why: p.Reason}, nil
	case events.ModelMissing:
		return identity.RunID(p.Run), run.Event{Kind: run.InputMissing, Why: p.Reason}, nil
	case events.InputChanged:
		return identity.RunID(p.Run), run.Event{Kind: run.InputChanged, Why: p.Reason}, nil
	case events.RequestsRefused:
		e := run.Event{Kind: run.RequestsRefused, Shard: p.Shard, Why: p.Reason, Outcome: p.Outcome, Control: math.MaxUint64}
		if p.Control != nil {
			e.Control = *p.Control
		}
		return identity.RunID(p.Run), e, nil
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

// finalized reads the exact counts from the run's summary, which is
// authoritative.
func (c *Coordinator) finalized(ctx context.Context, p events.Finalized) (identity.RunID, run.Event, error) {
	id := identity.RunID(p.Run)
	var s record.Summary
	err := input.ReadJSON(ctx, c.Blobs, record.OutputKey(id, record.SummaryFile), &s)
	if fault.Is(err, fault.NotFound) {
		return "", run.Event{}, fault.New(fault.Invalid, "event says run %s is finalized, but it has no summary", id)
	}
	if err != nil {
		return "", run.Event{}, err
	}
	kept := 0
	if len(s.FinishReasons) > 0 { // they leave out copies and what a child keeps
		kept = int(s.Completed) - int(s.Copies)
		for _, n := range s.FinishReasons {
			kept -= n
		}
	}
	e := run.Event{Kind: run.Finalized, Counts: shard.Counts{
		OK: int(s.Completed), Failed: int(s.Failed), ByClass: s.FailedByClass,
		PromptTokens: s.PromptTokens, CompletionTokens: s.CompletionTokens, WastedTokens: s.WastedTokens,
		CachedTokens: s.CachedTokens, ReasoningTokens: s.ReasoningTokens, WastedEstimated: s.WastedEstimated,
		Finish: s.FinishReasons, UsageUnknown: s.UsageUnknown, Kept: kept,
	}}
	e.RefusedLines = s.RefusedLines()
	for _, r := range s.Roles {
		e.Roles = append(e.Roles, shard.Counts{OK: int(r.Completed), Failed: int(r.Failed), ByClass: r.FailedByClass,
			PromptTokens: r.PromptTokens, CompletionTokens: r.CompletionTokens, WastedTokens: r.WastedTokens,
			WastedEstimated: r.WastedEstimated})
	}
	return id, e, nil
}

// warn logs a warning, unless ctx has ended: then the process stops, its calls
// are canceled, and their messages are delivered again.
func (c *Coordinator) warn(ctx context.Context, what string, args ...any) {
	if ctx.Err() == nil {
		c.Log.WarnContext(ctx, what, args...)
	}
}
