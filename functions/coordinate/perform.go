package coordinate

import (
	"bytes"
	"context"
	"fmt"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/scaling"
	"rollout/shared/core/schedule"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// sentWork is the demand of the pools of a run, nil until a call of Apply sends work of it. The
// call tells the last one, once: OnSent's receiver adds what it is told.
type sentWork map[string]scaling.Demand

// note notes the demand after effects were performed, if work was sent then or before.
func (w *sentWork) note(l *loaded, sent bool) {
	switch {
	case l.state.Phase != run.Running:
		*w = nil
	case sent || *w != nil:
		*w = l.manifest.Demands(l.state, 0)
	}
}

// tell calls OnSent for each pool.
func (c *Coordinator) tell(w sentWork) {
	for pool, n := range w {
		c.opts.Hooks.OnSent(pool, n)
	}
}

// perform performs the state's effects, and sends last what is left of a batch of work
// messages. Performing an effect again is harmless. It notes in demand what machines are needed.
// It returns follow-up events: what it found out on the way, for the next step.
func (c *Coordinator) perform(ctx context.Context, l *loaded, demand *sentWork) (follow []run.Event, err error) {
	id, sent := l.state.Run, false
	work := workSender{Coordinator: c, loaded: l}
	for _, e := range l.state.Effects {
		switch e.Kind {
		case run.Send:
			if pool := c.unserved(l.manifest); pool != "" {
				follow = append(follow, run.Event{Kind: run.InputMissing, Why: noPool(pool), MessageIndex: fromSelf})
				continue
			}
			err, sent = work.add(ctx, e), true
			if p := l.manifest.Parent; p != nil && fault.Is(err, fault.NotFound) {
				follow = append(follow, run.Event{Kind: run.InputMissing, Why: noPlan(p.Run), MessageIndex: fromSelf})
				err = nil
			}
		case run.Seal:
			var sealed []run.Event
			sealed, err = c.seal(ctx, l, *e.Range, run.Reason(e.Why).Class())
			follow = append(follow, sealed...)
		case run.SetPause:
			err = c.setDesired(ctx, l, record.Control{Desired: record.DesiredPause, Reason: e.Why, Refused: e.Refused})
		case run.SetEnd:
			err = c.setDesired(ctx, l, record.Control{Desired: record.DesiredEnd, Reason: e.Why})
		case run.Replan:
			err = c.Send(ctx, host.TaskQueue, events.RunSubmitted{Run: string(id)})
		case run.Finalize:
			err = c.Send(ctx, host.TaskQueue, events.Finalize{Run: string(id)})
		case run.RecordPruned:
			follow, err = append(follow, evaluate), c.recordPruned(ctx, id, *e.Pruned, e.Why)
		case run.Continue:
			follow = append(follow, evaluate)
		default:
			err = fault.New(fault.Internal, "unknown effect %q", e.Kind)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := work.flush(ctx); err != nil {
		return nil, err
	}
	demand.note(l, sent)
	return follow, nil
}

// evaluate is the follow-up event of an effect after which another step may do more.
var evaluate = run.Event{Kind: run.Reevaluate, MessageIndex: fromSelf}

// recordPruned writes the record of a pruned variant, unless it exists.
func (c *Coordinator) recordPruned(ctx context.Context, id identity.RunID, v schedule.PrunedVariant, why string) error {
	body := record.Encode(record.PrunedVariant{Schema: record.Schema, Run: id, Variant: v.Variant, From: v.From, Why: why})
	_, err := c.Blobs.Put(ctx, record.PrunedKey(id, v.Variant), bytes.NewReader(body), blob.PutOptions{CreateOnly: true})
	if fault.Is(err, fault.Conflict) {
		return nil
	}
	return err
}

// noPool is the reason for which a run of a pool without queues pauses.
func noPool(pool string) string {
	return fmt.Sprintf("the config has no pool %s any more: deploy it with that pool and resume the run, "+
		"or stop the run, which keeps its answers", pool)
}

// noPlan is the reason for which a child pauses whose parent's plan is gone.
func noPlan(parent identity.RunID) string {
	return fmt.Sprintf("the work files of run %s are gone, which this run continues: stop this run, which keeps its "+
		"answers, and submit the input again", parent)
}

// seal ends every open shard of the range by compare-and-swap, so that a later
// commit loses. It returns a ShardDone event for each shard of the range, sealed
// here or not. class is given to the items without a row.
func (c *Coordinator) seal(ctx context.Context, l *loaded, r interval.Range, class fault.Class) ([]run.Event, error) {
	var out []run.Event
	for n := r.Lo; n < r.Hi; n++ {
		items, err := c.items(ctx, l.state.Run, n)
		if err != nil {
			return nil, err
		}
		sealed := false
		key := identity.ShardKey(l.state.Run, n)
		d, err := host.Update(ctx, c.Docs, key, func(d shard.Doc, found bool) (shard.Doc, bool, error) {
			if !found {
				d = shard.New(l.state.Run, n)
			}
			if sealed = d.Open(); !sealed {
				return d, false, nil
			}
			d, err := c.withMachine(ctx, d)
			if err != nil {
				return d, false, err
			}
			d, err = d.Seal(class, items)
			return d, true, err
		})
		if err != nil {
			return nil, fault.Wrap(err, "seal shard %d of run %s", n, l.state.Run)
		}
		if sealed {
			claim := observe.Claim{Run: d.Run, Shard: d.Shard, Attempt: d.Attempt, Worker: d.Worker}
			c.Observe(ctx, observe.ShardDone{Claim: claim, Counts: d.Counts, Sealed: d.Sealed})
		}
		out = append(out, run.Event{Kind: run.ShardDone, Shard: n, Counts: d.Counts, MessageIndex: fromSelf})
	}
	return out, nil
}

// withMachine returns the document of an open shard with the time of its holder's machine
// that the last heartbeat says.
func (c *Coordinator) withMachine(ctx context.Context, d shard.Doc) (shard.Doc, error) {
	if d.State != shard.Running {
		return d, nil
	}
	var b health.Heartbeat
	_, _, err := host.Load(ctx, c.Docs, record.HeartbeatKey(d.Worker), &b)
	if tolerable(err) { // of another version: the run must end all the same
		return d, nil
	}
	if err != nil {
		return d, err
	}
	spent := b.Spent(d.Run, d.Shard, d.Attempt)
	spent.Tokens = 0 // answers in flight may still be in no row
	return d.CountLost(spent), nil
}

// fromSelf is the MessageIndex of events that coordinate itself makes.
const fromSelf = -1

// items returns how many items shard n has by the plan.
func (c *Coordinator) items(ctx context.Context, id identity.RunID, n int) (int, error) {
	entry, row, err := c.index.FindShard(ctx, id, n)
	if err != nil {
		return 0, err
	}
	rows, err := c.index.Rows(ctx, id, entry, row, 1)
	if err != nil {
		return 0, err
	}
	return int(rows[0].Items), nil
}

// setDesired writes the pause or end that coordinate itself decided into the
// control document. It never replaces a desired end. It does not pause a run
// whose control has changed since the state was saved, so that a repeated effect
// does not undo a resume.
func (c *Coordinator) setDesired(ctx context.Context, l *loaded, want record.Control) error {
	id := l.state.Run
	change := func(ctl record.Control, _ bool) (record.Control, bool, error) {
		newer := ctl.Sequence > l.state.Control
		if ctl.Desired == record.DesiredEnd || ctl.Desired == want.Desired ||
			want.Desired == record.DesiredPause && newer {
			return ctl, false, nil
		}
		next := want
		next.Schema, next.Sequence, next.At = record.Schema, ctl.Sequence+1, c.Clock.Now().UTC()
		return next, true, nil
	}
	_, err := host.Update(ctx, c.Docs, record.ControlKey(id), change)
	return fault.Wrap(err, "set control of run %s", id)
}
