package worker

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/engine/identity"
	"rollout/shared/engine/run"
	"rollout/shared/engine/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
	"rollout/shared/result"
)

// loadTries is how often the lines of a shard are asked for, with pauses
// between, before it goes back: some 10 s.
const loadTries = 10

// load loads the shard's lines. A fault that may pass is waited for: given
// back, the shard would come here again at once.
func (w *Worker) load(ctx context.Context, h *hold, msg events.Work) error {
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
	switch fault.Of(err) {
	case fault.NotFound, fault.Invalid, fault.Canceled:
		return false
	}
	return fault.ClassOf(err) != fault.InputChanged
}

// loadLines reads the shard's lines, and the rows that an earlier holder
// checkpointed.
func (w *Worker) loadLines(ctx context.Context, h *hold, msg events.Work) error {
	e, err := w.index.Entry(ctx, h.run, msg.Range)
	if err != nil {
		return err
	}
	if e.FirstShard+msg.Row != h.shard {
		return fault.New(fault.Invalid, "row %d of range %d of run %s is not shard %d", msg.Row, msg.Range, h.run, h.shard)
	}
	in, err := w.index.Load(ctx, h.manifest, msg.Range, msg.Row)
	if err != nil {
		return err
	}
	s := newShard(h.manifest, h.shard, in)
	s.slots, s.earlier, s.begun, s.stopping, s.onBegin = w.slots, h.earlier, h.begun, h.stopping, w.itemBegun
	if err := w.resume(ctx, h, s); err != nil {
		return err
	}
	w.mu.Lock()
	h.work = s
	w.perShard = max(1, len(in.Lines))
	w.mu.Unlock()
	return nil
}

// resume takes the rows of the shard's checkpoint over. One that is lost or
// damaged costs its answers: the items are asked again.
func (w *Worker) resume(ctx context.Context, h *hold, s *Shard) error {
	c := h.doc.Checkpoint
	if c == nil {
		return nil
	}
	rows, err := result.ReadCheckpoint(ctx, w.Blobs, *c, len(s.Lines))
	switch {
	case err == nil:
		s.restore(rows, h.doc.Counts)
	case fault.Is(err, fault.NotFound), fault.Is(err, fault.Corrupt):
		w.Log.ErrorContext(ctx, "checkpoint can't be used; its items are asked again", "run", h.run, "shard", h.shard, "error", err)
		h.doc.Checkpoint, h.doc.Counts = nil, shard.Counts{}
	default:
		return err
	}
	return nil
}

// itemBegun is called whenever an item was begun, and when no more will be.
func (w *Worker) itemBegun() {
	w.pace.began(w.Clock.Now())
	w.wake()
}

// hold executes the shard to its commit, or gives it back.
func (w *Worker) hold(ctx context.Context, h *hold) {
	exec, abort := context.WithCancel(ctx)
	defer abort()
	h.executing(abort)
	defer h.over()
	done := make(chan error, 1)
	w.work.Go(func() { done <- w.exec.Run(exec, h.work) })

	tick := time.NewTicker(w.cfg.Checkpoint)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if ctx.Err() == nil {
				w.finish(ctx, h, err)
			}
			return
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
func (w *Worker) finish(ctx context.Context, h *hold, execErr error) {
	if execErr != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "executor failed; the shard goes back", "run", h.run, "shard", h.shard, "error", execErr)
		w.mu.Lock()
		w.unready = true
		w.faults++
		w.mu.Unlock()
	}
	_, _, complete := h.work.final()
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
	if err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "shard is lost to this worker", "run", h.run, "shard", h.shard, "attempt", h.attempt, "error", err)
	}
}

// giveBack ends a hold whose lines can't be had.
func (w *Worker) giveBack(ctx context.Context, h *hold, why error) {
	w.Log.WarnContext(ctx, "shard can't be loaded", "run", h.run, "shard", h.shard, "error", why)
	if err := w.persist(ctx, h, w.release); err != nil {
		w.Log.WarnContext(ctx, "shard is lost to this worker", "run", h.run, "shard", h.shard, "error", err)
	}
	w.delist(h)
	var p events.Payload
	switch {
	case fault.Is(why, fault.NotFound):
		p = events.InputMissing{Run: string(h.run), Shard: h.shard, Reason: why.Error()}
	case fault.ClassOf(why) == fault.InputChanged:
		p = events.InputChanged{Run: string(h.run), Shard: h.shard, Reason: why.Error()}
	default:
		return
	}
	if err := w.Send(ctx, host.CoordinateQueue, p); err != nil {
		w.Log.WarnContext(ctx, "event not sent; the shard is found by reclaim", "error", err)
	}
}

// persist repeats a write until it succeeds, the shard is somebody else's, or
// the lease or the budget of a drain is over: a store that is full or down
// must not cost answers.
func (w *Worker) persist(ctx context.Context, h *hold, write func(context.Context, *hold) error) error {
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
func (w *Worker) reload(ctx context.Context, h *hold) error {
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

// commit puts the result and makes the shard Done.
func (w *Worker) commit(ctx context.Context, h *hold) error {
	rows, counts, _ := h.work.final()
	b, outputLen := result.Append(make([]byte, 0, size(rows)), rows)
	ref, err := w.put(ctx, h, b)
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
	return w.announce(ctx, w.tellDone(ctx, h.doc))
}

// seal ends the shard of a run that ends, with the rows there are.
func (w *Worker) seal(ctx context.Context, h *hold) error {
	if err := w.checkpoint(ctx, h); err != nil {
		return err
	}
	ctl, err := w.control(ctx, h.run, 0)
	if err != nil {
		return err
	}
	err = w.swap(ctx, h, func(d shard.Doc) (shard.Doc, error) {
		return d.Seal(run.Reason(ctl.reason).Class(), len(h.work.Lines))
	})
	if err != nil {
		return err
	}
	return w.announce(ctx, w.tellDone(ctx, h.doc))
}

// release hands the shard back with the rows there are.
func (w *Worker) release(ctx context.Context, h *hold) error {
	if h.work != nil {
		if err := w.checkpoint(ctx, h); err != nil {
			return err
		}
	}
	return w.handBack(ctx, h)
}

// handBack hands the shard back as its document says it is.
func (w *Worker) handBack(ctx context.Context, h *hold) error {
	if err := w.swap(ctx, h, func(d shard.Doc) (shard.Doc, error) { return d.Release() }); err != nil {
		return err
	}
	w.Log.InfoContext(ctx, events.ObserveShardReleased, "run", h.run, "shard", h.shard, "attempt", h.attempt)
	return w.announce(ctx, w.Send(ctx, host.CoordinateQueue, events.Released{
		Run: string(h.run), Shard: h.shard, Worker: w.cfg.ID, Attempt: h.attempt}))
}

// announce logs an event that could not be sent: the document decides, and
// reclaim finds it.
func (w *Worker) announce(ctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "event not sent; reclaim will find the shard", "error", err)
	}
	return nil
}

// save is a checkpoint amid the work. A lost race is looked into at once: who
// lost the shard must not go on.
func (w *Worker) save(ctx context.Context, h *hold) error {
	err := w.checkpoint(ctx, h)
	if fault.Is(err, fault.Conflict) {
		return w.reload(ctx, h)
	}
	return err
}

// checkpoint keeps the rows there are, if no checkpoint holds them yet.
func (w *Worker) checkpoint(ctx context.Context, h *hold) error {
	if !h.work.unsaved() {
		return nil
	}
	rows, counts, _ := h.work.final()
	b, err := result.AppendCheckpoint(make([]byte, 0, size(rows)+64*len(rows)), rows)
	if err != nil {
		return err
	}
	ref, err := w.put(ctx, h, b)
	if err != nil {
		return err
	}
	err = w.swap(ctx, h, func(d shard.Doc) (shard.Doc, error) { return d.Save(h.holder(w.cfg.ID), ref, counts) })
	if err != nil {
		return err
	}
	h.work.keep(len(rows))
	w.Log.DebugContext(ctx, events.ObserveShardCheckpoint, "run", h.run, "shard", h.shard, "rows", len(rows))
	return nil
}

// swap writes the next state of the shard's document.
func (w *Worker) swap(ctx context.Context, h *hold, next func(shard.Doc) (shard.Doc, error)) error {
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
func (w *Worker) put(ctx context.Context, h *hold, b []byte) (shard.Ref, error) {
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

// tellDone reports a Done shard to coordinate.
func (w *Worker) tellDone(ctx context.Context, d shard.Doc) error {
	p := events.ShardDone{Run: string(d.Run), Shard: d.Shard, Attempt: d.Attempt, Worker: d.Worker, Term: d.Term, Counts: events.Counts(d.Counts)}
	if d.Result != nil {
		p.Digest = d.Result.Digest
	}
	return w.Send(ctx, host.CoordinateQueue, p)
}

func size(rows []result.Row) int {
	n := 0
	for _, r := range rows {
		n += len(r.Bytes)
	}
	return n
}
