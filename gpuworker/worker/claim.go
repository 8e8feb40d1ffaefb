package worker

import (
	"context"
	"fmt"
	"time"

	"rollout/events"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/kind"
	"rollout/shared/observe"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// claim claims and loads the shard that a message of queue q names. It returns
// nil if the shard needs no work here. The returned context carries the shard's
// span. On an error the message is not acknowledged and will be delivered again.
func (w *Worker) claim(ctx context.Context, q string, m queue.Message) (context.Context, *heldShard, error) {
	began := w.Clock.Now()
	envelope, payload, err := events.Decode(m.Body)
	msg, ok := payload.(events.Work)
	if err == nil && !ok {
		err = fault.New(fault.Invalid, "event %T is not a work message", payload)
	}
	if err != nil {
		return ctx, nil, w.DeadLetter(ctx, q, m, fault.WithKind(fault.Invalid, err, "decode work message"))
	}
	h, err := w.tryClaim(ctx, msg)
	if err != nil {
		return ctx, nil, err
	}
	// From here on the heartbeat stands for a claimed shard. A shard that was
	// not claimed needs no message.
	w.acknowledge(ctx, q, m.Receipt)
	if h == nil {
		return ctx, nil, nil
	}
	ctx = w.startShardSpan(observe.ContextWithTraceparent(ctx, envelope.Traceparent), h, began)
	w.Observe(ctx, observe.ShardClaimed{Claim: w.claimInfo(h)})
	loading, span := w.StartChildSpan(ctx, "load")
	err = w.load(loading, h, msg)
	span.End(err)
	if err != nil {
		w.releaseUnloaded(ctx, h, err)
		h.span.End(err)
		return ctx, nil, nil
	}
	return ctx, h, nil
}

// maxClaimRaces bounds how often a claim is decided again because another writer
// changed the document first.
const maxClaimRaces = 8

// tryClaim claims the shard if it needs work and no living worker holds it. It
// returns nil if there is nothing to do.
func (w *Worker) tryClaim(ctx context.Context, msg events.Work) (*heldShard, error) {
	key := shardKey{identity.RunID(msg.Run), msg.Shard}
	if w.draining() {
		return nil, fault.New(fault.Canceled, "worker is draining")
	}
	of, err := w.runInfo(ctx, key.run)
	if host.IsExpired(err) {
		w.Log.InfoContext(ctx, "a message for a run that has expired is dropped", "run", key.run, "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ctl, err := w.control(ctx, key.run, min(w.cfg.Timings.Interval, maxControlAge))
	if err != nil {
		return nil, err
	}
	if ctl.desired != record.DesiredRun {
		return nil, nil
	}
	for race := range maxClaimRaces {
		d := shard.New(key.run, key.shard)
		var rev document.Revision
		if race > 0 || !w.presumedPending(key, msg) {
			rev, _, err = host.Load(ctx, w.Docs, identity.ShardKey(key.run, key.shard), &d)
		}
		if err != nil {
			return nil, err
		}
		if d.State == shard.Done {
			w.report(ctx, shardDone(d))
			return nil, nil
		}
		holder, spent, err := w.holderStatus(ctx, d)
		if err != nil || d.State == shard.Running && holder == shard.HolderAlive {
			return nil, err
		}
		d = d.CountLost(spent)
		if why := w.needless(ctx, d, of, msg); why != nil {
			w.report(ctx, why)
			return nil, nil
		}
		if holder == shard.HolderVanished && of.kind.Blameless {
			holder = shard.HolderVanishedBlameless
		}
		h, err := w.writeClaim(ctx, of, d, rev, holder)
		if h != nil {
			h.control = ctl
		}
		if !fault.Is(err, fault.Conflict) {
			return h, err
		}
	}
	return nil, fault.New(fault.Unavailable, "claim of shard %d of run %s lost %d races",
		key.shard, key.run, maxClaimRaces)
}

// needless returns the event to repeat for a shard that a message should not have
// named: coordinate has not heard that the shard has spent the message's allowance, or
// that an item of the users failed in a run that ends with that; or the worker knows no price,
// and the run has a budget in dollars. It returns nil for other shards.
func (w *Worker) needless(ctx context.Context, d shard.Doc, of runInfo, msg events.Work) events.Payload {
	spent, allowed := d.Counts.Spend(), allowanceOf(msg)
	switch {
	case of.manifest.Config.Limits.FailFast && d.Counts.Failed > d.Counts.KeptFailed:
		role, err := w.index.RoleOf(ctx, of.manifest, d.Shard)
		if err != nil || !of.manifest.HasOutput(role) { // load meets the error again
			return nil
		}
		return events.ItemFailed{Run: string(d.Run), Shard: d.Shard}
	case d.State == shard.Pending && spent.Reaches(allowed):
		e := events.ShardReleased{Run: string(d.Run), Shard: d.Shard, Worker: w.cfg.ID, Attempt: d.Attempt,
			Allowance: allowed.Tokens, Spent: spent.Tokens, AllowanceMicroUSD: allowed.MicroUSD}
		if allowed.MicroUSD > 0 {
			e.SpentMicroUSD = spent.MicroUSD
		}
		return e
	case allowed.MicroUSD > 0 && !w.knowsPrices():
		return events.ModelMissing{Run: string(d.Run), Shard: d.Shard, Reason: fmt.Sprintf("limits.dollars counts "+
			"nothing on worker %s of pool %s: neither its machine nor its engine's tokens have a price; set price in "+
			"[[pool]], or prompt_price and completion_price in [engine], then resume the run", w.cfg.ID, w.cfg.Pool)}
	}
	return nil
}

// presumedPending reports whether the shard was probably never claimed. Then it
// has no document, and the claim saves one read. If it does have one, the create
// conflicts and the claim is decided again with the document.
func (w *Worker) presumedPending(key shardKey, msg events.Work) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, mine := w.held[key]
	return msg.Generation == 0 && !mine
}

// holderStatus judges the holder of a Running shard by its heartbeat, which also says
// what all attempts have spent. For other states the result has no meaning.
func (w *Worker) holderStatus(ctx context.Context, d shard.Doc) (status shard.HolderStatus, spent shard.Spent,
	err error) {
	if d.State != shard.Running {
		return shard.HolderAlive, spent, nil
	}
	if d.Worker == w.cfg.ID {
		w.mu.Lock()
		_, mine := w.held[shardKey{d.Run, d.Shard}]
		w.mu.Unlock()
		if mine {
			return shard.HolderAlive, spent, nil
		}
		return shard.HolderLeft, spent, nil // this worker claimed it, but the store's reply was lost
	}
	var b health.Heartbeat
	_, found, err := host.Load(ctx, w.Docs, record.HeartbeatKey(d.Worker), &b)
	if err != nil {
		return shard.HolderAlive, spent, err
	}
	heartbeat := &b
	if !found {
		heartbeat = nil
	}
	spent = b.Spent(d.Run, d.Shard, d.Attempt)
	switch w.cfg.Timings.Judge(d, heartbeat, w.Clock.Now()) {
	case health.HolderDead:
		if b.State == health.Gone {
			return shard.HolderLeft, spent, nil // it drained, but could not release the shard
		}
		return shard.HolderVanished, spent, nil
	case health.NotListed:
		return shard.HolderLeft, spent, nil
	}
	return shard.HolderAlive, spent, nil
}

// writeClaim claims the shard d at revision rev by compare-and-swap. The shard is
// added to the held ones before the write, so that every heartbeat newer than
// the claim lists it.
func (w *Worker) writeClaim(ctx context.Context, of runInfo, d shard.Doc, rev document.Revision,
	holder shard.HolderStatus) (*heldShard, error) {
	h := &heldShard{shardKey: shardKey{d.Run, d.Shard}, runInfo: of, attempt: d.Attempt + 1,
		stopping: make(chan struct{}), begun: newLatch()}
	if !w.addHeld(h) {
		// Another message led to its claim, or it is being released now. In the
		// latter case this message may be the only one left, so keep it.
		return nil, fault.New(fault.Unavailable, "shard %d of run %s is still held by this worker", h.shard, h.run)
	}
	claimed, err := d.Claim(w.cfg.ID, w.Clock.Now().UTC(), holder)
	if err == nil {
		err = w.mayWrite()
	}
	if err == nil {
		h.rev, err = host.Save(ctx, w.Docs, identity.ShardKey(h.run, h.shard), claimed, rev)
	}
	if err != nil {
		w.removeHeld(h)
		return nil, err
	}
	h.doc = claimed
	return h, nil
}

// heldRun is a run of which shards are held.
type heldRun struct {
	shards int
	last   *latch // of the newest one: the next shard's items follow it
}

// addHeld adds the shard to the held ones, which heartbeats list, and places it
// behind the one of its run that was claimed before. It returns false if the shard is already held.
func (w *Worker) addHeld(h *heldShard) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.held[h.shardKey]; ok {
		return false
	}
	w.held[h.shardKey] = h
	of, ok := w.heldRuns[h.run]
	if !ok {
		of.last = newLatch()
		of.last.open()
	}
	h.earlier = of.last.ch
	w.heldRuns[h.run] = heldRun{of.shards + 1, h.begun}
	w.slots.share(len(w.heldRuns) > 1)
	if w.state == health.Draining {
		h.stop(stopDrain, func() time.Duration { return w.requestBudgetOf(h) })
	}
	return true
}

// removeHeld removes the shard from the held ones. Its document must be settled.
func (w *Worker) removeHeld(h *heldShard) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, h.shardKey)
	if of := w.heldRuns[h.run]; of.shards > 1 {
		of.shards--
		w.heldRuns[h.run] = of
	} else {
		delete(w.heldRuns, h.run)
	}
	w.slots.share(len(w.heldRuns) > 1)
	w.lastBusy = w.Clock.Now()
	h.begun.open() // lets the next shard begin, even if this one never ran
	if w.idle() {
		w.flush()
	}
	w.wake()
}

// runInfo is what a worker knows of a run. It never changes while the run exists.
type runInfo struct {
	manifest record.Manifest
	kind     kind.Kind
	readAt   time.Time
}

// runInfo returns the run's manifest and kind, from a cache: see record.ManifestTrust.
func (w *Worker) runInfo(ctx context.Context, run identity.RunID) (of runInfo, err error) {
	now := w.Clock.Now()
	w.mu.Lock()
	of, ok := w.runs[run]
	w.mu.Unlock()
	if ok && now.Sub(of.readAt) < record.ManifestTrust {
		return of, nil
	}
	of = runInfo{readAt: now}
	if of.manifest, err = host.LoadManifest(ctx, w.Docs, run); err != nil {
		return of, err
	}
	if of.kind, err = w.cfg.Kinds.Of(of.manifest.Kind); err != nil {
		return of, fault.Wrap(err, "work on run %s", run)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.runs) >= maxRuns {
		clear(w.runs)
	}
	w.runs[run] = of
	return of, nil
}

// maxRuns bounds the cache of runInfos.
const maxRuns = 64
