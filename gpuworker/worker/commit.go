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

// commit puts the result and makes the shard Done.
func (w *Worker) commit(ctx context.Context, h *heldShard) (err error) {
	ctx, span := w.StartChildSpan(ctx, "commit")
	defer func() { span.End(err) }()
	rows, counts := h.work.final()
	write, room := result.Append, size(rows)
	if h.manifest.Config.Dedupe.Enabled {
		write, room = result.AppendIndexed, room+8*len(rows)
	}
	buf := w.results.get(room)
	b, outputLen := write(buf, rows)
	ref, err := w.put(ctx, h, b)
	w.results.put(b)
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
	h.work.forget()
	w.Observe(ctx, observe.ShardDone{Claim: w.claimed(h), Counts: counts, Bytes: ref.Length})
	w.report(ctx, done(h.doc))
	return nil
}

// seal ends the shard of a run that ends, with the rows there are.
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
	w.Observe(ctx, observe.ShardDone{Claim: w.claimed(h), Counts: h.doc.Counts, Sealed: h.doc.Sealed})
	w.report(ctx, done(h.doc))
	return nil
}

// release hands the shard back with the rows there are.
func (w *Worker) release(ctx context.Context, h *heldShard) error {
	if h.work != nil {
		if err := w.checkpoint(ctx, h); err != nil {
			return err
		}
	}
	return w.handBack(ctx, h)
}

// handBack hands the shard back as its document says it is.
func (w *Worker) handBack(ctx context.Context, h *heldShard) error {
	if err := w.swap(ctx, h, func(d shard.Doc) (shard.Doc, error) { return h.work.withWaste(d).Release() }); err != nil {
		return err
	}
	w.Observe(ctx, observe.ShardReleased{Claim: w.claimed(h)})
	w.announce(ctx, w.Send(ctx, host.CoordinateQueue, events.ShardReleased{
		Run: string(h.run), Shard: h.shard, Worker: w.cfg.ID, Attempt: h.attempt}))
	return nil
}

// announce logs an event that could not be sent: the document decides, and
// reclaim finds it.
func (w *Worker) announce(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "event not sent; reclaim will find the shard", "error", err)
	}
}

// save is a checkpoint amid the work. A lost race is looked into at once: who
// lost the shard must not go on.
func (w *Worker) save(ctx context.Context, h *heldShard) error {
	err := w.checkpoint(ctx, h)
	if fault.Is(err, fault.Conflict) {
		return w.reload(ctx, h)
	}
	return err
}

// checkpoint keeps the rows there are, if no checkpoint holds them yet.
func (w *Worker) checkpoint(ctx context.Context, h *heldShard) error {
	if !h.work.unsaved() {
		return nil
	}
	return w.keep(ctx, h, func(d shard.Doc) (shard.Doc, error) { return d, nil })
}

// keep makes a change of the shard's document and keeps the rows there are, if
// no checkpoint holds them yet, with one write of it.
func (w *Worker) keep(ctx context.Context, h *heldShard, next change) error {
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
	h.work.keep(len(rows))
	w.Observe(ctx, observe.ShardCheckpoint{Claim: w.claimed(h), Rows: len(rows), Bytes: len(b)})
	return nil
}

// swap writes the next state of the shard's document.
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

// put writes an object of this attempt under a name never used before.
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

// done is what coordinate hears of a Done shard.
func done(d shard.Doc) events.ShardDone {
	p := events.ShardDone{Run: string(d.Run), Shard: d.Shard, Attempt: d.Attempt, Worker: d.Worker, Term: d.Term, Counts: events.Counts(d.Counts)}
	if d.Result != nil {
		p.Digest = d.Result.Digest
	}
	return p
}

func size(rows []result.Row) int {
	n := 0
	for _, r := range rows {
		n += len(r.Bytes)
	}
	return n
}
