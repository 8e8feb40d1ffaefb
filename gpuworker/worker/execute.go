package worker

import (
	"context"
	"errors"
	"time"

	"rollout/events"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
	"rollout/shared/text"
)

// itemBegun is called after each item of a shard has begun, and when the shard
// will begin no more.
func (w *Worker) itemBegun() {
	w.pace.began(w.Clock.Now())
	w.wake()
}

// execute runs the executor over the shard, saves checkpoints, and ends with the
// shard's commit, seal or release. An error means that the worker lost the shard.
func (w *Worker) execute(ctx context.Context, h *heldShard) error {
	exec, abort := context.WithCancel(ctx)
	defer abort()
	h.executing(abort)
	defer h.executed()
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
		case n := <-h.work.writes:
			err := w.persist(ctx, h, func(ctx context.Context, h *heldShard) error { return w.saveWith(ctx, h, n.change) })
			if err != nil {
				abort() // finish meets the same error
			}
			n.reply <- docWritten{h.doc, err}
		case <-tick.C:
			if err := w.saveDuringExecution(ctx, h); fault.Is(err, fault.Fenced) {
				abort() // finish meets the same error
			} else if err != nil {
				w.Log.WarnContext(ctx, "checkpoint failed", "run", h.run, "shard", h.shard, "error", err)
			}
		}
	}
}

// finish commits, seals or releases the shard after its executor has returned.
func (w *Worker) finish(ctx context.Context, h *heldShard, execErr error) error {
	var refused *RefusedError
	if errors.As(execErr, &refused) {
		w.Log.WarnContext(ctx, "run is refused", "run", h.run, "shard", h.shard, "error", execErr)
	} else if execErr != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "executor failed; the shard is released", "run", h.run, "shard", h.shard, "error", execErr)
		w.mu.Lock()
		w.unready = true
		w.failures++
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
		w.failures = 0
		w.mu.Unlock()
	}
	if err != nil && !fault.Is(err, fault.Fenced) && w.outOfTime() {
		err = w.releaseAsSaved(ctx, h)
	}
	w.removeHeld(h)
	w.reportRunFault(ctx, h, execErr)
	if err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "shard is lost to this worker",
			"run", h.run, "shard", h.shard, "attempt", h.attempt, "error", err)
	}
	return err
}

// releaseUnloaded releases a shard whose lines can't be read because of loadErr.
func (w *Worker) releaseUnloaded(ctx context.Context, h *heldShard, loadErr error) {
	w.Log.WarnContext(ctx, "shard can't be loaded", "run", h.run, "shard", h.shard, "error", loadErr)
	if err := w.persist(ctx, h, w.release); err != nil {
		w.Log.WarnContext(ctx, "shard is lost to this worker", "run", h.run, "shard", h.shard, "error", err)
	}
	w.removeHeld(h)
	w.reportInputFault(ctx, h, loadErr)
}

// persist repeats a write until it succeeds, the shard belongs to another
// holder, the lease is lost, or the budget of a drain is used up. A store that
// is full or down therefore loses no answers.
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
		w.Log.WarnContext(ctx, "result can't be saved yet", "run", h.run, "shard", h.shard, "error", err)
		pause(ctx, wait)
	}
}

// reload reads the shard's document again after a conflict. It returns Fenced if
// the claim no longer holds.
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

// itemFailed stops all shards of a run that ends with its first failed item, and tells
// coordinate, which ends the run. Until the worker reads that, it claims no shard of it.
func (w *Worker) itemFailed(ctx context.Context, of *heldShard) {
	w.mu.Lock()
	seen := w.controls[of.run]
	seen.desired, seen.at = record.DesiredEnd, w.Clock.Now()
	w.controls[of.run] = seen
	for _, h := range w.held {
		if h.run == of.run {
			h.stop(stopFailed, func() time.Duration { return w.grace(h.manifest) })
		}
	}
	w.mu.Unlock()
	w.work.Go(func() { w.sendNow(ctx, events.ItemFailed{Run: string(of.run), Shard: of.shard}) })
}

// ErrModelMismatch is in the chain of an executor's error if the run was started
// with another model, or another revision of it, than the worker serves. No
// worker of this pool can continue the run, so that the run pauses.
var ErrModelMismatch = errors.New("the run was started with another model than this worker serves")

// RefusedError is an executor's error if no request of the run is answered for a cause
// that only a user can mend: a setting of the run, or a quota. The run pauses.
type RefusedError struct {
	// Outcome names what the requests met, so that a resumed run is recognized that
	// meets it again. Example: "status_401".
	Outcome string
	Err     error
}

func (e *RefusedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RefusedError) Unwrap() error { return e.Err }

// reportRunFault tells coordinate of a fault for which the run must pause: the
// worker serves another model, or the input that the executor reads itself, such
// as the dataset of a training, can't be read or has changed.
func (w *Worker) reportRunFault(ctx context.Context, h *heldShard, err error) {
	switch {
	case errors.As(err, new(*RefusedError)): // reported before the release
	case errors.Is(err, ErrModelMismatch):
		w.sendNow(ctx, events.ModelMissing{Run: string(h.run), Shard: h.shard, Reason: err.Error()})
	case h.kind.ReadsInput:
		w.reportInputFault(ctx, h, err)
	}
}

// reportRefused tells coordinate that no request of the run is answered.
func (w *Worker) reportRefused(ctx context.Context, h *heldShard, err *RefusedError) {
	control := h.control.sequence
	w.sendNow(ctx, events.RequestsRefused{Run: string(h.run), Shard: h.shard, Outcome: err.Outcome, Control: &control,
		Reason: text.Truncate(err.Error(), maxRefusal, "…")})
}

// maxRefusal bounds the reason of a refusal, in bytes: the limit of the event.
const maxRefusal = 500

// reportInputFault tells coordinate if err means that the run's input is missing
// or has changed.
func (w *Worker) reportInputFault(ctx context.Context, h *heldShard, err error) {
	switch {
	case fault.Is(err, fault.NotFound):
		w.sendNow(ctx, events.InputMissing{Run: string(h.run), Shard: h.shard, Reason: err.Error()})
	case fault.ClassOf(err) == fault.InputChanged:
		w.sendNow(ctx, events.InputChanged{Run: string(h.run), Shard: h.shard, Reason: err.Error()})
	}
}

func (w *Worker) sendNow(ctx context.Context, p events.Payload) {
	if err := w.Send(ctx, host.CoordinateQueue, p); err != nil {
		w.Log.WarnContext(ctx, "event not sent; reclaim will find the shard", "error", err)
	}
}
