package coordinate

import (
	"cmp"
	"context"
	"slices"

	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// observe reads the documents on which the run's next step depends: plan, control
// and heartbeats, and the attributes of the shards that it may look at. An ended run
// depends on none; it takes no part of its pools any more. pruned are the events of what looks
// have pruned and the state does not have.
func (c *Coordinator) observe(ctx context.Context, l *loaded, r run.Rules, evs []run.Event) (w run.Observed,
	pruned []run.Event, err error) {
	id := l.state.Run
	if l.state.Phase.Ended() {
		// A process that remembered the run as running may have entered it again just now.
		_, err := c.enter(ctx, l, nil)
		return w, nil, err
	}
	if l.state.Complete && !awaitsLook(l) {
		w.Shards, w.Items, w.Complete = l.state.Shards, l.state.Items, true
		for _, r := range l.state.Roles {
			w.Roles = append(w.Roles, r.RolePlan)
		}
	} else if pruned, err = c.observePlan(ctx, l, &w); err != nil {
		return w, nil, err
	}
	if !r.Constraints.NeedAttributes() { // else the attributes say it
		if err := c.observeKept(ctx, l, &w); err != nil {
			return w, nil, err
		}
	}
	var ctl record.Control
	if _, _, err := host.Load(ctx, c.Docs, record.ControlKey(id), &ctl); err != nil {
		return w, nil, err
	}
	w.Sequence, w.ControlAt, w.ControlReason = ctl.Sequence, ctl.At, ctl.Reason
	switch ctl.Desired {
	case record.DesiredPause:
		w.DesiredPause = true
	case record.DesiredEnd:
		w.DesiredEnd, w.ControlReason = cmp.Or(run.Reason(ctl.Reason), run.ReasonStopped), ctl.Text
	}
	if err := c.observeWorkers(ctx, l, &w, onlyCounts(l.state, w, evs)); err != nil {
		return w, nil, err
	}
	return w, pruned, c.attrs.observe(ctx, l.state, l.manifest.Parent != nil, &w, r, evs)
}

// awaitsLook reports whether looks at the run are not decided, which its plan says then.
func awaitsLook(l *loaded) bool {
	return l.state.Looks+1 < len(l.kind.PlacesOf(l.manifest, l.state.Shards))
}

// observePlan reads how far planning is, its problem, and what its looks have pruned.
func (c *Coordinator) observePlan(ctx context.Context, l *loaded, w *run.Observed) (pruned []run.Event, err error) {
	var p record.Plan
	_, found, err := host.Load(ctx, c.Docs, record.PlanKey(l.state.Run), &p)
	if err != nil || !found {
		return nil, err
	}
	w.Shards, w.Items, w.Complete = p.Shards, p.Items, p.Complete() && p.Problem == ""
	w.Growing, w.Sources = p.Growing && p.AllMerged(), p.Sources()
	if l.kind.Prunes(l.manifest) {
		if l.kind.OwnLines && p.Appended == nil || !p.AllMerged() {
			w.Shards, w.Items = 0, 0 // looks are laid out over all shards: none is sent before
		}
		w.Looks = p.LooksOf(l.kind.PlacesOf(l.manifest, w.Shards))
	}
	w.PlanProblem, w.PlanProblemControl, w.Roles = p.Problem, p.Control, p.Roles
	if p.Inherited != nil {
		w.KeptCounts, w.KeptRoles = p.Inherited.Kept, p.Inherited.KeptRoles
	}
	switch p.ProblemKind {
	case record.InputChanged:
		w.PlanProblemEnd = run.ReasonInputChanged
	case record.InputBroken:
		w.PlanProblemEnd = run.ReasonInputBroken
	}
	for _, v := range p.Pruned {
		if !l.state.Pruned.HasVariant(v.Variant) {
			pruned = append(pruned, run.Event{Kind: run.VariantPruned, Variant: v.Variant, Shard: v.From, Why: v.Why,
				MessageIndex: fromSelf})
		}
	}
	return pruned, nil
}

// observeWorkers counts how many shards the pools that the run needs now can hold,
// how they are divided, and how many workers of all its pools hold shards of the run and
// have not acted on the newest control. remembered heartbeats may do.
func (c *Coordinator) observeWorkers(ctx context.Context, l *loaded, w *run.Observed, remembered bool) error {
	now, pools, needed := c.Clock.Now(), l.manifest.Pools(), l.manifest.NeededPools(l.state.WithRoles(w.Roles))
	sharing, err := c.observeShares(ctx, l, needed)
	if err != nil {
		return err
	}
	sharing.Items = max(1, int(max(l.state.Items, w.Items))/max(1, l.state.Shards, w.Shards))
	all, unread := c.beats.read(ctx, now, remembered)
	for _, b := range all {
		if !slices.Contains(pools, b.Pool) || c.opts.Timings.Dead(b, now) {
			continue
		}
		if slices.Contains(needed, b.Pool) {
			w.Pool += 1 + 2*b.MaxInFlight/sharing.Items
			w.Requests += b.MaxInFlight
			w.Workers++
			w.InFlight += inFlight(l.state.Run, b)
			addHolder(&sharing, l.state.Run, b)
		}
		for _, h := range b.Holds {
			if h.Run == l.state.Run && b.Control[h.Run] < w.Sequence {
				w.Unacknowledged++
				break
			}
		}
	}
	began := l.state.StartedAt
	sharing.Young = began.IsZero() || now.Sub(began) < rateKnown
	w.Sharing = sharing
	return c.tolerate(ctx, unread)
}

// inFlight returns how many requests of a run a worker has in flight. Workers that do not tell the
// runs apart may hold shards of this one alone.
func inFlight(id identity.RunID, b health.Heartbeat) int {
	if own, ok := b.Load.Of(id); ok {
		return own.InFlight
	}
	for _, h := range b.Holds {
		if h.Run != id {
			return 0
		}
	}
	if len(b.Holds) == 0 {
		return 0
	}
	return b.Load.InFlight
}

// tolerate logs the error of heartbeats that can't be decoded, and returns any other one: a
// worker of another version must not stop the runs of this one.
func (c *Coordinator) tolerate(ctx context.Context, err error) error {
	if tolerable(err) {
		c.Log.WarnContext(ctx, "a heartbeat can't be read", observe.KeyError, err)
		return nil
	}
	return err
}
