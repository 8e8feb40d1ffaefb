package worker

import (
	"context"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
)

// itemBegun is called whenever an item was begun, and when no more will be.
func (w *Worker) itemBegun() {
	w.pace.began(w.Clock.Now())
	w.wake()
}

// execute executes the shard to its commit, or gives it back. The error says that
// it is lost to this worker.
func (w *Worker) execute(ctx context.Context, h *heldShard) error {
	exec, abort := context.WithCancel(ctx)
	defer abort()
	h.executing(abort)
	defer h.over()
	done := make(chan error, 1)
	exec, execution := w.StartChildSpan(exec, "execute")
	w.work.Go(func() {
		err := w.exec.Run(exec, h.work)
		execution.End(err)
		done <- err
	})

	tick := time.NewTicker(w.cfg.CheckpointInterval)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return w.finish(ctx, h, err)
		case n := <-h.work.notes:
			err := w.persist(ctx, h, func(ctx context.Context, h *heldShard) error { return w.keep(ctx, h, n.change) })
			if err != nil {
				abort() // finish finds out why
			}
			n.answer <- noted{h.doc, err}
		case <-tick.C:
			if err := w.save(ctx, h); fault.Is(err, fault.Fenced) {
				abort() // finish finds out the same
			} else if err != nil {
				w.Log.WarnContext(ctx, "checkpoint failed", "run", h.run, "shard", h.shard, "error", err)
			}
		}
	}
}

// finish ends the hold after its executor has ended.
func (w *Worker) finish(ctx context.Context, h *heldShard, execErr error) error {
	if execErr != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "executor failed; the shard goes back", "run", h.run, "shard", h.shard, "error", execErr)
		w.mu.Lock()
		w.unready = true
		w.faults++
		w.mu.Unlock()
	}
	complete := h.work.complete()
	var err error
	switch {
	case complete:
		err = w.persist(ctx, h, w.commit)
	case h.stopped() == stopEnd:
		err = w.persist(ctx, h, w.seal)
	default:
		err = w.persist(ctx, h, w.release)
	}
	if complete && err == nil {
		w.mu.Lock()
		w.faults = 0
		w.mu.Unlock()
	}
	if err != nil && !fault.Is(err, fault.Fenced) && w.outOfTime() {
		err = w.handBack(ctx, h)
	}
	w.delist(h)
	w.reportRunFault(ctx, h, execErr)
	if err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "shard is lost to this worker", "run", h.run, "shard", h.shard, "attempt", h.attempt, "error", err)
	}
	return err
}

// giveBack ends a hold whose lines can't be had.
func (w *Worker) giveBack(ctx context.Context, h *heldShard, why error) {
	w.Log.WarnContext(ctx, "shard can't be loaded", "run", h.run, "shard", h.shard, "error", why)
	if err := w.persist(ctx, h, w.release); err != nil {
		w.Log.WarnContext(ctx, "shard is lost to this worker", "run", h.run, "shard", h.shard, "error", err)
	}
	w.delist(h)
	w.reportInputFault(ctx, h, why)
}

// persist repeats a write until it succeeds, the shard is somebody else's, or
// the lease or the budget of a drain is over: a store that is full or down
// must not cost answers.
func (w *Worker) persist(ctx context.Context, h *heldShard, write func(context.Context, *heldShard) error) error {
	for wait := firstWait; ; wait = min(2*wait, lastWait) {
		err := write(ctx, h)
		switch {
		case err == nil, fault.Is(err, fault.Fenced), ctx.Err() != nil:
			return err
		case fault.Is(err, fault.Conflict):
			if err = w.reload(ctx, h); err == nil {
				continue
			}
		}
		if fault.Is(err, fault.Fenced) || w.outOfTime() {
			return err
		}
		w.Log.WarnContext(ctx, "result can't be kept yet", "run", h.run, "shard", h.shard, "error", err)
		pause(ctx, wait)
	}
}

// reload reads the shard's document again after a lost race; Fenced if the
// claim does not hold any more.
func (w *Worker) reload(ctx context.Context, h *heldShard) error {
	var d shard.Doc
	rev, found, err := host.Load(ctx, w.Docs, identity.ShardKey(h.run, h.shard), &d)
	if err != nil {
		return err
	}
	if !found || !d.HeldBy(h.holder(w.cfg.ID)) {
		return fault.New(fault.Fenced, "shard %d of run %s is %s, attempt %d", h.shard, h.run, d.State, d.Attempt)
	}
	h.doc, h.rev = d, rev
	return nil
}
