package coordinate

import (
	"cmp"
	"context"

	"rollout/shared/engine/health"
	"rollout/shared/engine/run"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// look reads what the documents say now, as far as the run's next step can
// depend on it.
func (c *Coordinator) look(ctx context.Context, l *loaded) (run.World, error) {
	var w run.World
	id := l.state.Run
	if l.state.Phase.Ended() {
		return w, nil
	}
	if l.state.Complete {
		w.Shards, w.Items, w.Complete = l.state.Shards, l.state.Items, true
	} else if err := c.lookAtPlan(ctx, l, &w); err != nil {
		return w, err
	}
	var ctl record.Control
	if _, _, err := host.Load(ctx, c.Docs, record.ControlKey(id), &ctl); err != nil {
		return w, err
	}
	w.Sequence, w.Why = ctl.Sequence, ctl.Reason
	switch ctl.Desired {
	case record.Pause:
		w.Pause = true
	case record.End:
		w.End, w.Why = cmp.Or(run.Reason(ctl.Reason), run.ReasonStopped), ""
	}
	return w, c.lookAtWorkers(ctx, l, &w)
}

func (c *Coordinator) lookAtPlan(ctx context.Context, l *loaded, w *run.World) error {
	var p record.Plan
	_, found, err := host.Load(ctx, c.Docs, record.PlanKey(l.state.Run), &p)
	if err != nil || !found {
		return err
	}
	w.Shards, w.Items, w.Complete = p.Shards, p.Items, p.Complete() && p.Problem == ""
	w.Problem, w.ProblemAt = p.Problem, p.Control
	switch p.Trouble {
	case record.InputChanged:
		w.Ends = run.ReasonChanged
	case record.InputBroken:
		w.Ends = run.ReasonBroken
	}
	return nil
}

// lookAtWorkers counts what the run's pool can hold, and who of it has not
// acted on the newest control yet.
func (c *Coordinator) lookAtWorkers(ctx context.Context, l *loaded, w *run.World) error {
	perShard := 1
	if l.state.Shards > 0 {
		perShard = max(1, int(l.state.Items)/l.state.Shards)
	}
	now := c.Clock.Now()
	err := host.Each(ctx, c.Docs, record.BeatPrefix, func(b health.Beat) error {
		if b.Pool != l.manifest.Pool || c.timings.Dead(b, now) {
			return nil
		}
		w.Pool += 1 + 2*b.InFlight/perShard
		for _, h := range b.Holds {
			if h.Run == l.state.Run && b.Control[h.Run] < w.Sequence {
				w.Unacknowledged++
				break
			}
		}
		return nil
	})
	if fault.Is(err, fault.Corrupt) || fault.Is(err, fault.Invalid) {
		// A worker of another version must not stop the runs of this one.
		c.Log.WarnContext(ctx, "a heartbeat can't be read", "error", err)
		return nil
	}
	return err
}
