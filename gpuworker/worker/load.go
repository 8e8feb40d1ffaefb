package worker

import (
	"context"
	"time"

	"rollout/events"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/result"
)

// loadTries is how often the lines of a shard are asked for, with pauses
// between, before it goes back: some 10 s.
const loadTries = 10

// load loads the shard's lines. A fault that may pass is waited for: given
// back, the shard would come here again at once.
func (w *Worker) load(ctx context.Context, h *heldShard, msg events.Work) error {
	wait := firstWait
	for try := 1; ; try++ {
		err := w.loadLines(ctx, h, msg)
		if err == nil || try == loadTries || !mayPass(err) {
			return err
		}
		w.Log.WarnContext(ctx, "shard can't be loaded yet", "run", h.run, "shard", h.shard, "error", err)
		h.begun.open() // others need not wait their turn for it
		select {
		case <-time.After(wait):
		case <-h.stopping:
			return err
		case <-ctx.Done():
			return err
		}
		wait = min(2*wait, lastWait)
	}
}

// mayPass reports whether the same lines may be had later.
func mayPass(err error) bool {
	switch fault.KindOf(err) {
	case fault.NotFound, fault.Invalid, fault.Canceled:
		return false
	}
	return fault.ClassOf(err) != fault.InputChanged
}

// loadLines reads the shard's lines, and the rows that an earlier holder
// checkpointed.
func (w *Worker) loadLines(ctx context.Context, h *heldShard, msg events.Work) error {
	e, err := w.index.Entry(ctx, h.run, msg.Range)
	if err != nil {
		return err
	}
	if e.FirstShard+msg.Row != h.shard {
		return fault.New(fault.Invalid, "row %d of range %d of run %s is not shard %d", msg.Row, msg.Range, h.run, h.shard)
	}
	in, err := w.index.LoadShard(ctx, h.manifest, msg.Range, msg.Row)
	if err != nil {
		return err
	}
	s := newShard(h.manifest, h.shard, in)
	s.now, s.slots, s.stats, s.pages = w.Clock.Now, w.slots, &w.stats, &w.pages
	s.earlier, s.begun, s.stopping, s.onBegin = h.earlier, h.begun, h.stopping, w.itemBegun
	s.holder, s.notes = h.holder(w.cfg.ID), make(chan note)
	s.lockEngine = func(exec context.Context) (func(), bool) { return w.lockEngine(ctx, exec, h.stopping) }
	if err := w.resume(ctx, h, s); err != nil {
		return err
	}
	if s.trains() {
		s.training = training{kept: h.doc.Snapshot, vanished: h.doc.VanishedHolders}
	} else {
		s.suspect(h.doc)
	}
	w.mu.Lock()
	h.work = s
	w.perShard = max(1, len(in.Lines))
	w.mu.Unlock()
	return nil
}

// resume takes the rows of the shard's checkpoint over. One that is lost or
// damaged costs its answers: the items are asked again.
func (w *Worker) resume(ctx context.Context, h *heldShard, s *Shard) error {
	c := h.doc.Checkpoint
	if c == nil {
		s.counts.WastedTokens = h.doc.Counts.WastedTokens
		return nil
	}
	rows, err := result.ReadCheckpoint(ctx, w.Blobs, *c, len(s.Lines))
	switch {
	case err == nil:
		s.restore(rows, h.doc.Counts)
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Corrupt):
		w.Log.ErrorContext(ctx, "checkpoint can't be used; its items are asked again", "run", h.run, "shard", h.shard, "error", err)
		h.doc.Checkpoint, h.doc.Counts = nil, shard.Counts{WastedTokens: h.doc.Counts.WastedTokens}
		s.counts.WastedTokens = h.doc.Counts.WastedTokens
	default:
		return err
	}
	return nil
}
