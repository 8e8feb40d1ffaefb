package worker

import (
	"context"
	"sync"
	"time"

	"rollout/events"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/result"
)

// loadTries is how often the lines of a shard are asked for before it is
// released. With the pauses between, that takes about 10 s.
const loadTries = 10

// load reads the shard's lines and the rows of its checkpoint. It retries faults
// that may pass: if the shard were released at once, its message would come back
// at once.
func (w *Worker) load(ctx context.Context, h *heldShard, msg events.Work) error {
	wait := firstWait
	for try := 1; ; try++ {
		err := w.loadLines(ctx, h, msg)
		if err == nil || try == loadTries || !mayPass(err) {
			return err
		}
		w.Log.WarnContext(ctx, "shard can't be loaded yet", "run", h.run, "shard", h.shard, "error", err)
		h.begun.open() // later shards need not wait for this one
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

// mayPass reports whether a later attempt may read the same lines.
func mayPass(err error) bool {
	switch fault.KindOf(err) {
	case fault.NotFound, fault.Invalid, fault.Canceled:
		return false
	}
	return fault.ClassOf(err) != fault.InputChanged
}

// loadLines reads the shard's lines, and the rows that an earlier holder saved
// in a checkpoint.
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
	m, err := h.manifest.InRole(in.Role)
	if err != nil {
		return err
	}
	rows, counts, err := w.savedRows(ctx, h, in)
	if err != nil {
		return err
	}
	s := newShard(m, h.shard, in)
	s.now, s.slots, s.limiter, s.stats, s.pages = w.Clock.Now, w.slots, w.limiter, &w.stats, &w.pageBuffers
	s.earlier, s.begun, s.stopping, s.onBegin = h.earlier, h.begun, h.stopping, w.itemBegun
	s.Control = Control{Sequence: h.control.sequence, Refused: h.control.refused}
	s.reportRefused = func(ctx context.Context, err *RefusedError) { w.reportRefused(ctx, h, err) }
	s.HasAnswers = h.doc.Checkpoint != nil && h.doc.Counts.HasAnswers()
	s.findAnswers = func(ctx context.Context) (Answers, error) { return w.findAnswers(ctx, h, in.Role) }
	s.holder, s.writes = h.holder(w.cfg.ID), make(chan docWrite)
	s.lockEngine = func(exec context.Context) (func(), bool) { return w.lockEngine(ctx, exec, h.stopping) }
	s.machine = w.machine.use(m.CreatedAt, counts.Machines)
	s.money.begin(w.cfg.TokenPrices, &s.machine, counts.TokenNanoUSD)
	s.restore(rows, counts)
	w.allow(h, s, allowanceOf(msg))
	if m.Config.Limits.FailFast {
		s.onFailed = sync.OnceFunc(func() { w.itemFailed(ctx, h) })
	}
	if h.kind.Trains {
		s.training = training{snapshot: h.doc.Snapshot, vanished: h.doc.VanishedHolders}
	} else {
		s.loadSuspects(h.doc)
	}
	w.mu.Lock()
	h.work = s
	w.perShard = max(1, len(in.Lines))
	w.mu.Unlock()
	return nil
}

// savedRows returns the rows with which a holder begins, and their counts: those of
// the shard's checkpoint or, before the first one, those that a child run keeps from
// its parent. Rows that are lost or damaged are answered again. An item with a saved
// row is no copy of another one: see input.Line.
func (w *Worker) savedRows(ctx context.Context, h *heldShard, in input.Shard) (rows []result.Row, c shard.Counts,
	err error) {
	if h.doc.Checkpoint != nil {
		rows, err = result.ReadCheckpoint(ctx, w.Blobs, *h.doc.Checkpoint, len(in.Lines))
		c = h.doc.Counts
		if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt) {
			w.Log.ErrorContext(ctx, "checkpoint can't be read; its items are answered again",
				"run", h.run, "shard", h.shard, "error", err)
			h.doc.Checkpoint, h.doc.Counts = nil, shard.Counts{WastedTokens: h.doc.Counts.Tokens(),
				WastedEstimated: h.doc.Counts.WastedEstimated, Machines: h.doc.Counts.Machines,
				TokenNanoUSD: h.doc.Counts.TokenNanoUSD}
		} else if err != nil {
			return nil, c, err
		}
	}
	if h.doc.Checkpoint == nil {
		if rows, c, err = w.keptRows(ctx, h); err != nil {
			return nil, c, err
		}
		c.WastedTokens, c.WastedEstimated = h.doc.Counts.WastedTokens, h.doc.Counts.WastedEstimated
		c.Machines, c.TokenNanoUSD = h.doc.Counts.Machines, h.doc.Counts.TokenNanoUSD
	}
	for _, r := range rows {
		if r.Item >= len(in.Lines) {
			return nil, c, fault.New(fault.Corrupt, "shard %d of run %s has a row of item %d of %d",
				h.shard, h.run, r.Item, len(in.Lines))
		}
		in.Lines[r.Item].Original = nil
	}
	if h.doc.Checkpoint == nil {
		for _, l := range in.Lines {
			if l.Original != nil {
				c.OK++ // its copy, which newShard makes
			}
		}
	}
	return rows, c, nil
}

// keptRows returns the rows that a child run keeps of the shard from its parent. If
// the parent's files are gone, it keeps no row: all items are answered again.
func (w *Worker) keptRows(ctx context.Context, h *heldShard) ([]result.Row, shard.Counts, error) {
	if h.manifest.Parent == nil {
		return nil, shard.Counts{}, nil
	}
	in, err := w.index.Inherited(ctx, h.run, h.shard)
	if err != nil {
		return nil, shard.Counts{}, err
	}
	rows, c, err := result.ReadKept(ctx, w.Blobs, h.manifest, in)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt) {
		w.Log.ErrorContext(ctx, "rows of the parent run can't be read; their items are answered again",
			"run", h.run, "shard", h.shard, "error", err)
		return nil, shard.Counts{}, nil
	}
	return rows, c, err
}
