package worker

import (
	"bytes"
	"context"
	"fmt"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
	"rollout/shared/result"
)

// commit puts the result object, then makes the shard Done.
func (w *Worker) commit(ctx context.Context, h *heldShard) (err error) {
	ctx, span := w.StartChildSpan(ctx, "commit")
	defer func() { span.End(err) }()
	rows, counts := h.work.final()
	write, room := result.Append, size(rows)
	if h.manifest.Config.Dedupe.Enabled {
		write, room = result.AppendIndexed, room+8*len(rows)
	}
	buf := w.resultBuffers.get(room)
	b, outputLen := write(buf, rows)
	ref, err := w.put(ctx, h, b)
	w.resultBuffers.put(b)
	if err != nil {
		return err
	}
	err = w.swap(ctx, h, func(d shard.Doc) (shard.Doc, error) {
		d.Items = len(h.work.Lines)
		return d.Commit(h.holder(w.cfg.ID), ref, outputLen, counts)
	})
	if err != nil {
		return err
	}
	h.work.freeRows()
	w.Observe(ctx, observe.ShardDone{Claim: w.claimInfo(h), Counts: counts, Bytes: ref.Length})
	w.report(ctx, shardDone(h.doc))
	return nil
}

// seal makes a shard of a run that ends Done with the rows so far.
func (w *Worker) seal(ctx context.Context, h *heldShard) error {
	if err := w.checkpoint(ctx, h); err != nil {
		return err
	}
	ctl, err := w.control(ctx, h.run, 0)
	if err != nil {
		return err
	}
	err = w.swap(ctx, h, func(d shard.Doc) (shard.Doc, error) {
		return h.work.withWaste(d).Seal(run.Reason(ctl.reason).Class(), len(h.work.Lines))
	})
	if err != nil {
		return err
	}
	w.Observe(ctx, observe.ShardDone{Claim: w.claimInfo(h), Counts: h.doc.Counts, Sealed: h.doc.Sealed})
	w.report(ctx, shardDone(h.doc))
	return nil
}

// release saves the rows so far and releases the shard.
func (w *Worker) release(ctx context.Context, h *heldShard) error {
	if h.work != nil {
		if err := w.checkpoint(ctx, h); err != nil {
			return err
		}
	}
	return w.releaseAsSaved(ctx, h)
}

// releaseAsSaved releases the shard with its last checkpoint. Newer rows are
// given up.
func (w *Worker) releaseAsSaved(ctx context.Context, h *heldShard) error {
	err := w.swap(ctx, h, func(d shard.Doc) (shard.Doc, error) { return h.work.withWaste(d).Release() })
	if err != nil {
		return err
	}
	w.Observe(ctx, observe.ShardReleased{Claim: w.claimInfo(h)})
	e := events.ShardReleased{Run: string(h.run), Shard: h.shard, Worker: w.cfg.ID, Attempt: h.attempt}
	if h.stopped() == stopUsedUp {
		spent := h.doc.Counts.Spend()
		e.Allowance, e.Spent = h.allowance.Tokens, spent.Tokens
		if h.allowance.MicroUSD > 0 {
			e.AllowanceMicroUSD, e.SpentMicroUSD = h.allowance.MicroUSD, spent.MicroUSD
		}
	}
	w.logUnsent(ctx, w.Send(ctx, host.CoordinateQueue, e))
	return nil
}

// logUnsent logs that an event could not be sent. The document decides, so that
// reclaim finds the shard.
func (w *Worker) logUnsent(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "event not sent; reclaim will find the shard", "error", err)
	}
}

// saveDuringExecution saves a checkpoint while the executor runs. After a
// conflict it reads the document at once: Fenced stops the executor of a shard
// that another worker holds.
func (w *Worker) saveDuringExecution(ctx context.Context, h *heldShard) error {
	err := w.checkpoint(ctx, h)
	if fault.Is(err, fault.Conflict) {
		return w.reload(ctx, h)
	}
	return err
}

// checkpoint saves the rows so far, unless the last checkpoint has them all.
func (w *Worker) checkpoint(ctx context.Context, h *heldShard) error {
	if !h.work.unsaved() {
		return nil
	}
	return w.saveWith(ctx, h, func(d shard.Doc) (shard.Doc, error) { return d, nil })
}

// saveWith applies a change to the shard's document. If there are rows that no
// checkpoint has, it saves them too, in the same write of the document.
func (w *Worker) saveWith(ctx context.Context, h *heldShard, next change) error {
	if !h.work.unsaved() {
		return w.swap(ctx, h, next)
	}
	rows, counts := h.work.final()
	b, err := result.AppendCheckpoint(make([]byte, 0, size(rows)+64*len(rows)), rows)
	if err != nil {
		return err
	}
	ref, err := w.put(ctx, h, b)
	if err != nil {
		return err
	}
	err = w.swap(ctx, h, func(d shard.Doc) (shard.Doc, error) {
		d, err := d.SaveCheckpoint(h.holder(w.cfg.ID), ref, counts)
		if err != nil {
			return d, err
		}
		return next(d)
	})
	if err != nil {
		return err
	}
	h.work.checkpointed(len(rows))
	w.Observe(ctx, observe.ShardCheckpoint{Claim: w.claimInfo(h), Rows: len(rows), Bytes: len(b)})
	return nil
}

// swap replaces the shard's document by next's result, by compare-and-swap.
func (w *Worker) swap(ctx context.Context, h *heldShard, next change) error {
	d, err := next(h.doc)
	if err != nil {
		return err
	}
	if err := w.mayWrite(); err != nil {
		return err
	}
	rev, err := host.Save(ctx, w.Docs, identity.ShardKey(h.run, h.shard), d, h.rev)
	if err != nil {
		return err
	}
	h.doc, h.rev = d, rev
	return nil
}

// put writes a create-only object of this attempt under a new name.
func (w *Worker) put(ctx context.Context, h *heldShard, b []byte) (_ shard.Ref, err error) {
	ctx, span := w.StartChildSpan(ctx, "put")
	defer func() { span.End(err) }()
	if err := w.mayWrite(); err != nil {
		return shard.Ref{}, err
	}
	nonce := fmt.Sprintf("%s-%d", w.cfg.ID, w.objects.Add(1))
	key := record.ShardObjectKey(h.run, h.shard, h.attempt, nonce)
	if _, err := w.Blobs.Put(ctx, key, bytes.NewReader(b), blob.PutOptions{CreateOnly: true}); err != nil {
		return shard.Ref{}, err
	}
	return shard.Ref{Key: key, Length: int64(len(b)), Digest: identity.Content(b).String()}, nil
}

// shardDone is the event that tells coordinate of a Done shard.
func shardDone(d shard.Doc) events.ShardDone {
	p := events.ShardDone{Run: string(d.Run), Shard: d.Shard, Attempt: d.Attempt, Worker: d.Worker,
		Counts: host.EventCounts(d.Counts)}
	if d.Result != nil {
		p.Digest = d.Result.Digest
	}
	return p
}

// size is how many bytes the rows have.
func size(rows []result.Row) int {
	n := 0
	for _, r := range rows {
		n += len(r.Bytes)
	}
	return n
}
