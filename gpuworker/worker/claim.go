package worker

import (
	"context"
	"time"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/queue"
	"rollout/shared/record"
)

// claim turns a work message of queue q into a loaded hold; nil if there is
// nothing to do here. The context is that of the work on it. An error leaves
// the message to be delivered again.
func (w *Worker) claim(ctx context.Context, q string, m queue.Message) (context.Context, *heldShard, error) {
	began := w.Clock.Now()
	envelope, payload, err := events.Decode(m.Body)
	msg, ok := payload.(events.Work)
	if err == nil && !ok {
		err = fault.New(fault.Invalid, "event %T is no work", payload)
	}
	if err != nil {
		return ctx, nil, w.DeadLetter(ctx, q, m, fault.WithKind(fault.Invalid, err, "decode work message"))
	}
	h, err := w.tryClaim(ctx, msg)
	if err != nil {
		return ctx, nil, err
	}
	// From here on the heartbeat speaks for the shard: the message is done
	// with, whether it led to a claim or not.
	w.acknowledge(ctx, q, m.Receipt)
	if h == nil {
		return ctx, nil, nil
	}
	ctx = w.begin(observe.ContextWithTraceparent(ctx, envelope.Traceparent), h, began)
	w.Observe(ctx, observe.ShardClaimed{Claim: w.claimed(h)})
	loading, span := w.StartChildSpan(ctx, "load")
	err = w.load(loading, h, msg)
	span.End(err)
	if err != nil {
		w.giveBack(ctx, h, err)
		h.span.End(err)
		return ctx, nil, nil
	}
	return ctx, h, nil
}

// maxRaces bounds how often a claim is decided anew because somebody else
// wrote the document first.
const maxRaces = 8

// tryClaim claims the shard if it needs work and nobody living has it; nil if
// there is nothing to do.
func (w *Worker) tryClaim(ctx context.Context, msg events.Work) (*heldShard, error) {
	key := shardKey{identity.RunID(msg.Run), msg.Shard}
	if w.draining() {
		return nil, fault.New(fault.Canceled, "worker is draining")
	}
	m, err := w.manifest(ctx, key.run)
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
	for race := range maxRaces {
		d := shard.New(key.run, key.shard)
		var rev document.Revision
		if race > 0 || !w.seemsUntouched(key, msg) {
			rev, _, err = host.Load(ctx, w.Docs, identity.ShardKey(key.run, key.shard), &d)
		}
		if err != nil {
			return nil, err
		}
		if d.State == shard.Done {
			w.report(ctx, done(d))
			return nil, nil
		}
		if msg.Term < d.Term { // of a coordinator that is none any more
			return nil, nil
		}
		fate, err := w.holderStatus(ctx, d)
		if err != nil || d.State == shard.Running && fate == shard.HolderAlive {
			return nil, err
		}
		if fate == shard.HolderVanished && m.Kind == config.KindTrain {
			fate = shard.HolderVanishedBlameless
		}
		h, err := w.writeClaim(ctx, key, m, d, rev, msg.Term, fate)
		if !fault.Is(err, fault.Conflict) {
			return h, err
		}
	}
	return nil, fault.New(fault.Unavailable, "claim of shard %d of run %s lost %d races", key.shard, key.run, maxRaces)
}

// seemsUntouched reports whether the shard, as far as is known here, was never
// claimed: then it has no document, and reading none would only cost time. If
// it has one after all, the claim loses its first race.
func (w *Worker) seemsUntouched(key shardKey, msg events.Work) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, mine := w.held[key]
	return msg.Generation == 0 && !mine
}

// holderStatus judges the holder of a Running shard.
func (w *Worker) holderStatus(ctx context.Context, d shard.Doc) (shard.HolderStatus, error) {
	if d.State != shard.Running {
		return shard.HolderAlive, nil
	}
	if d.Worker == w.cfg.ID {
		w.mu.Lock()
		_, mine := w.held[shardKey{d.Run, d.Shard}]
		w.mu.Unlock()
		if mine {
			return shard.HolderAlive, nil
		}
		return shard.HolderLeft, nil // ours, but a lost reply: nobody works on it
	}
	var b health.Heartbeat
	_, found, err := host.Load(ctx, w.Docs, record.HeartbeatKey(d.Worker), &b)
	if err != nil {
		return shard.HolderAlive, err
	}
	beat := &b
	if !found {
		beat = nil
	}
	switch w.cfg.Timings.Judge(d, beat, w.Clock.Now()) {
	case health.HolderDead:
		if b.State == health.Gone {
			return shard.HolderLeft, nil // in order, but it could not hand back
		}
		return shard.HolderVanished, nil
	case health.NotListed:
		return shard.HolderLeft, nil
	}
	return shard.HolderAlive, nil
}

// writeClaim claims by compare-and-swap. The hold is listed before the claim
// is written, so that a beat newer than the claim always lists it.
func (w *Worker) writeClaim(ctx context.Context, key shardKey, m record.Manifest, d shard.Doc, rev document.Revision, term uint64, holder shard.HolderStatus) (*heldShard, error) {
	h := &heldShard{shardKey: key, manifest: m, attempt: d.Attempt + 1, stopping: make(chan struct{}), begun: newLatch()}
	if !w.enlist(h) {
		// By another message, or it is just being given back: this message may
		// be the only one left when that is over.
		return nil, fault.New(fault.Unavailable, "shard %d of run %s is being handled here", key.shard, key.run)
	}
	claimed, err := d.Claim(w.cfg.ID, term, w.Clock.Now().UTC(), holder)
	if err == nil {
		err = w.mayWrite()
	}
	if err == nil {
		h.rev, err = host.Save(ctx, w.Docs, identity.ShardKey(key.run, key.shard), claimed, rev)
	}
	if err != nil {
		w.delist(h)
		return nil, err
	}
	h.doc = claimed
	return h, nil
}

// enlist adds the hold to those that heartbeats list, and gives it its turn.
func (w *Worker) enlist(h *heldShard) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.held[h.shardKey]; ok {
		return false
	}
	w.held[h.shardKey] = h
	h.earlier, w.last = w.last.ch, h.begun
	if w.state == health.Draining {
		h.stop(stopDrain, func() time.Duration { return w.patienceFor(h) })
	}
	return true
}

// delist removes the hold: nobody here speaks for the shard any more.
func (w *Worker) delist(h *heldShard) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.held, h.shardKey)
	w.busyAt = w.Clock.Now()
	h.begun.open() // if it was never executed, the next one's turn comes all the same
	w.flushIf(w.idle())
	w.wake()
}

// manifest returns the run's manifest, which never changes.
func (w *Worker) manifest(ctx context.Context, run identity.RunID) (record.Manifest, error) {
	w.mu.Lock()
	m, ok := w.manifests[run]
	w.mu.Unlock()
	if ok {
		return m, nil
	}
	_, found, err := host.Load(ctx, w.Docs, record.ManifestKey(run), &m)
	if err != nil {
		return m, err
	}
	if !found {
		return m, fault.New(fault.NotFound, "run %s has no manifest", run)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.manifests) >= maxManifests {
		clear(w.manifests)
	}
	w.manifests[run] = m
	return m, nil
}

// maxManifests bounds how many manifests are remembered.
const maxManifests = 64
