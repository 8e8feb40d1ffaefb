package worker

import (
	"time"

	"rollout/shared/host"
)

// rota says which of a pool's queues to look into: the urgent one at first,
// again while it has something, and now and then; else the one for all work.
type rota struct {
	urgent  bool      // was looked into last
	looked  time.Time // when, the last time
	pending bool      // it may have more, or the other one is empty
}

// urgentEvery is how long a busy worker may leave the urgent queue alone.
const urgentEvery = 500 * time.Millisecond

// next is the queue to look into now, and how long to wait there.
func (r *rota) next(pool string, now time.Time) (queue string, patience time.Duration) {
	r.urgent = r.pending || now.Sub(r.looked) >= urgentEvery
	if r.urgent {
		r.looked = now
		return host.UrgentQueue(pool), 0
	}
	return host.WorkQueue(pool), longPoll
}

// found says how many messages there were.
func (r *rota) found(n int) { r.pending = r.urgent == (n > 0) }
