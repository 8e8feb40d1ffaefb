package coordinate

import (
	"context"
	"sync"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/run"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// heartbeats remembers those of all workers. The most frequent step, which only counts
// shards that are done, takes what was read up to half an interval ago: else each shard
// would cost a read of every worker. It is safe for concurrent use.
type heartbeats struct {
	docs   document.Store
	maxAge time.Duration

	mu     sync.Mutex
	at     time.Time
	all    []health.Heartbeat // it is replaced, never changed
	unread error              // of those that can't be decoded
}

// read returns the heartbeats as of now or, if they may be old, at most maxAge before. Those
// that can be decoded come with the error of those that can't, which tolerate accepts.
func (h *heartbeats) read(ctx context.Context, now time.Time, old bool) (all []health.Heartbeat, err error) {
	h.mu.Lock()
	all, unread, at := h.all, h.unread, h.at
	h.mu.Unlock()
	if old && !at.IsZero() && now.Sub(at) < h.maxAge {
		return all, unread
	}
	all = nil
	err = host.Each(ctx, h.docs, record.HeartbeatPrefix, func(b health.Heartbeat) error {
		if b.State != health.Booting { // of a machine without a worker
			all = append(all, b)
		}
		return nil
	})
	if err == nil || tolerable(err) {
		h.mu.Lock()
		h.all, h.unread, h.at = all, err, now
		h.mu.Unlock()
	}
	return all, err
}

// tolerable reports whether an error is that of heartbeats that can't be decoded.
func tolerable(err error) bool { return fault.Is(err, fault.Corrupt) || fault.Is(err, fault.Invalid) }

// onlyCounts reports whether a step of a run that goes on has only shards to count that
// are done. What workers acknowledge, or that one has joined, then plays no part.
func onlyCounts(s run.State, w run.Observed, evs []run.Event) bool {
	if s.Phase != run.Running || w.DesiredPause || w.DesiredEnd != "" || w.Sequence != s.Control {
		return false
	}
	for _, e := range evs {
		if e.Kind != run.ShardDone {
			return false
		}
	}
	return len(evs) > 0
}
