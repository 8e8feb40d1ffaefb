package worker

import (
	"time"

	"rollout/shared/host"
)

// queuePicker chooses the queue of the next receive request.
type queuePicker interface {
	// next returns the queue and how long to wait there for messages.
	next(now time.Time) (queue string, wait time.Duration)
	// found says how many messages the request returned.
	found(n int)
}

// queuePickers returns the pickers that the worker polls concurrently: a single
// one that alternates between the pool's queues where requests cost nothing, or
// one for each queue with long polls where each request costs money.
func (c Config) queuePickers() []queuePicker {
	if c.LongPoll == 0 {
		return []queuePicker{&alternatingPicker{pool: c.Pool}}
	}
	return []queuePicker{
		singleQueue{host.UrgentQueue(c.Pool), c.LongPoll},
		singleQueue{host.WorkQueue(c.Pool), c.LongPoll},
	}
}

// singleQueue always chooses the same queue.
type singleQueue struct {
	queue string
	wait  time.Duration
}

func (p singleQueue) next(time.Time) (string, time.Duration) { return p.queue, p.wait }

func (p singleQueue) found(int) {}

// alternatingPicker chooses the urgent queue first, again while it has messages,
// and at least every urgentEvery; otherwise the work queue.
type alternatingPicker struct {
	pool        string
	urgent      bool      // the last choice was the urgent queue
	urgentAt    time.Time // when it was chosen last
	checkUrgent bool      // it may have more messages, or the work queue was empty
}

// urgentEvery bounds how long a busy worker does not look at the urgent queue.
const urgentEvery = 500 * time.Millisecond

func (p *alternatingPicker) next(now time.Time) (queue string, wait time.Duration) {
	p.urgent = p.checkUrgent || now.Sub(p.urgentAt) >= urgentEvery
	if p.urgent {
		p.urgentAt = now
		return host.UrgentQueue(p.pool), 0
	}
	return host.WorkQueue(p.pool), longPoll
}

func (p *alternatingPicker) found(n int) { p.checkUrgent = p.urgent == (n > 0) }
