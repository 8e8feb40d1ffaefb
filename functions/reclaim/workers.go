package reclaim

import (
	"context"
	"strings"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// heartbeats reads all heartbeats, by worker. It marks each dead worker once, and
// deletes the heartbeats of workers that ended long ago.
func (r *Reclaimer) heartbeats(ctx context.Context, now time.Time) (map[string]health.Heartbeat, error) {
	out := map[string]health.Heartbeat{}
	r.beats.begin()
	for d, err := range document.All(ctx, r.Docs, record.HeartbeatPrefix) {
		if err != nil {
			return nil, fault.Wrap(err, "list the heartbeats")
		}
		b, err := r.beats.of(d)
		if err != nil {
			r.Log.WarnContext(ctx, "a heartbeat can't be read", observe.KeyError, err)
			continue // of a worker of another version
		}
		if b.State == health.Booting { // of a machine without a worker
			if now.Sub(b.DueAt) > retention(b) {
				err = r.forget(ctx, d)
			}
			if err != nil {
				return nil, err
			}
			continue
		}
		if r.frozen(d, b, now) { // deleted, so that other workers do not trust its times either
			if err := r.forget(ctx, d); err != nil {
				return nil, err
			}
			b.DueAt = now.Add(-r.timings.FailureTimeout - r.timings.SkewBudget - 1)
		}
		if now.Sub(b.DueAt) > retention(b) && r.timings.Dead(b, now) {
			if err := r.forget(ctx, d); err != nil {
				return nil, err
			}
			continue
		}
		out[b.Worker] = b
		if b.State != health.Gone && r.timings.Dead(b, now) {
			if err := r.failed(ctx, b, now); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// futureBeat is a heartbeat when it was first seen ahead of the clock.
type futureBeat struct {
	revision document.Revision
	at       time.Time
}

// frozen reports whether a heartbeat from the future, after the clock was set
// back, is that of a dead worker. Its times say nothing, so it counts as dead if
// its revision does not change for long enough.
func (r *Reclaimer) frozen(d document.Doc, b health.Heartbeat, now time.Time) bool {
	if b.State == health.Gone || !r.ahead(b.At, now) {
		delete(r.futureBeats, b.Worker)
		return false
	}
	seen, ok := r.futureBeats[b.Worker]
	if !ok || seen.revision != d.Revision {
		r.futureBeats[b.Worker] = futureBeat{d.Revision, now}
		return false
	}
	if now.Sub(seen.at) <= r.timings.FailureTimeout+r.timings.Due(now).Sub(now) {
		return false
	}
	delete(r.futureBeats, b.Worker)
	return true
}

// ahead reports whether a time is so far in the future that the clock must have
// been set back.
func (r *Reclaimer) ahead(at, now time.Time) bool {
	return at.Sub(now) > r.timings.SkewBudget+r.timings.FailureTimeout
}

// retainFor is how long the heartbeat of an ended worker is kept. The holder of a
// shard counts as dead once its heartbeat is deleted.
const retainFor = health.HeartbeatRetention

// forget deletes a heartbeat and the mark of its worker.
func (r *Reclaimer) forget(ctx context.Context, beat document.Doc) error {
	_, worker, _ := strings.Cut(beat.Key, "/")
	mark, err := r.Docs.Get(ctx, record.WorkerKey(worker))
	if err == nil {
		err = r.Docs.Delete(ctx, mark.Key, mark.Revision)
	}
	if err == nil || fault.Is(err, fault.NotFound) {
		err = r.Docs.Delete(ctx, beat.Key, beat.Revision)
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) {
		return nil // another scan has deleted it, or the worker has renewed it
	}
	return fault.Wrap(err, "delete the heartbeat of worker %s", worker)
}

// failed marks a dead worker. The scan that makes the mark records the event for
// observers.
func (r *Reclaimer) failed(ctx context.Context, b health.Heartbeat, now time.Time) error {
	var first bool
	mark := func(m record.WorkerMark, _ bool) (record.WorkerMark, bool, error) {
		first = m.Failed.IsZero()
		m.Schema, m.Failed = record.Schema, now.UTC()
		return m, first, nil
	}
	_, err := host.Update(ctx, r.Docs, record.WorkerKey(b.Worker), mark)
	if err == nil && first {
		r.Observe(ctx, observe.WorkerFailed{Worker: b.Worker, DueAt: b.DueAt, Overdue: now.Sub(b.DueAt),
			Shards: len(b.Holds)})
	}
	return err
}
