package worker

import (
	"time"

	"rollout/shared/host"
)

// queuePicker says which of a pool's queues to look into next, and how long to wait
// there.
type queuePicker interface {
	next(now time.Time) (queue string, patience time.Duration)
	found(n int) // says how many messages there were
}

// queuePickers are what a worker looks into at the same time: one queue after the
// other where that costs nothing, else each with long polls of its own, as
// every request costs money.
func (c Config) queuePickers() []queuePicker {
	if c.LongPoll == 0 {
		return []queuePicker{&alternatingPicker{pool: c.Pool}}
	}
	return []queuePicker{singleQueue{host.UrgentQueue(c.Pool), c.LongPoll}, singleQueue{host.WorkQueue(c.Pool), c.LongPoll}}
}

// singleQueue is one queue alone.
type singleQueue struct {
	queue    string
	patience time.Duration
}

func (f singleQueue) next(time.Time) (string, time.Duration) { return f.queue, f.patience }

func (f singleQueue) found(int) {}

// alternatingPicker looks into the urgent queue at first, again while it has something, and
// now and then; else into the one for all work.
type alternatingPicker struct {
	pool    string
	urgent  bool      // was looked into last
	looked  time.Time // when, the last time
	pending bool      // it may have more, or the other one is empty
}

// urgentEvery is how long a busy worker may leave the urgent queue alone.
const urgentEvery = 500 * time.Millisecond

func (r *alternatingPicker) next(now time.Time) (queue string, patience time.Duration) {
	r.urgent = r.pending || now.Sub(r.looked) >= urgentEvery
	if r.urgent {
		r.looked = now
		return host.UrgentQueue(r.pool), 0
	}
	return host.WorkQueue(r.pool), longPoll
}

func (r *alternatingPicker) found(n int) { r.pending = r.urgent == (n > 0) }
