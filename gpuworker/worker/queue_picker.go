package worker

import (
	"time"

	"rollout/shared/host"
)

// demand is how many messages the worker wants.
type demand struct {
	items int // to keep the engine full
	runs  int // to hold shards of runs that share the pool, from either queue: see short
	// urgentRuns is as runs, of those that can have shards in the urgent queue only.
	urgentRuns int
	// crowded says that nothing comes from the work queue for the sake of runs.
	crowded bool
}

// queuePicker chooses the next receive request.
type queuePicker interface {
	// next returns the queue, how many messages to ask for, and how long to wait
	// there for them. The demand is more than 0; n is 0 if nothing is wanted from the
	// picker's queues.
	next(now time.Time, d demand) (queue string, n int, wait time.Duration)
	// found says how many messages the request returned.
	found(n int)
}

// urgent returns how many messages to ask the urgent queue for: it has those of the runs
// that share the pool.
func (d demand) urgent() int { return min(maxPull, max(d.items, d.runs+d.urgentRuns)) }

// work returns how many messages to ask the work queue for. For the sake of runs it is one:
// the queue may have many of a run that had the pool alone.
func (d demand) work() int {
	if d.crowded {
		return d.items
	}
	return max(d.items, min(1, d.runs))
}

// isZero reports whether no message is wanted.
func (d demand) isZero() bool { return d.items == 0 && d.runs == 0 && d.urgentRuns == 0 }

// queuePickers returns the pickers that the worker polls concurrently: a single
// one that alternates between the pool's queues where requests cost nothing, or
// one for each queue with long polls where each request costs money.
func (c Config) queuePickers() []queuePicker {
	if c.LongPoll == 0 {
		return []queuePicker{&alternatingPicker{pool: c.Pool}}
	}
	return []queuePicker{
		singleQueue{host.UrgentQueue(c.Pool), demand.urgent, c.LongPoll},
		singleQueue{host.WorkQueue(c.Pool), demand.work, c.LongPoll},
	}
}

// singleQueue always chooses the same queue.
type singleQueue struct {
	queue string
	count func(demand) int
	wait  time.Duration
}

func (p singleQueue) next(_ time.Time, d demand) (string, int, time.Duration) {
	return p.queue, p.count(d), p.wait
}

func (p singleQueue) found(int) {}

// alternatingPicker chooses the urgent queue first, again while it has messages,
// and at least every urgentEvery; otherwise the work queue. For the sake of runs it chooses
// both in turn: the shards of a short run may be in either.
type alternatingPicker struct {
	pool        string
	urgent      bool      // the last choice was the urgent queue
	urgentAt    time.Time // when it was chosen last
	checkUrgent bool      // it may have more messages, or the work queue was empty
	foundUrgent bool      // it had messages when it was chosen last
}

// urgentEvery bounds how long a busy worker does not look at the urgent queue, and
// urgentEveryShort how long one that is short of a run does not. One that looks for
// shards that can be nowhere else waits there for urgentEverySent at most: the engine may
// need items from the work queue soon.
const (
	urgentEvery      = 500 * time.Millisecond
	urgentEveryShort = 200 * time.Millisecond
	urgentEverySent  = 50 * time.Millisecond
)

func (p *alternatingPicker) next(now time.Time, d demand) (queue string, n int, wait time.Duration) {
	switch {
	case d.work() == 0:
		p.urgent, p.urgentAt, wait = true, now, urgentEveryShort
		if d.urgentRuns > 0 {
			wait = urgentEverySent
		}
		return host.UrgentQueue(p.pool), d.urgent(), wait
	case d.items == 0:
		p.urgent = !p.urgent
	case d.urgentRuns > 0:
		p.urgent = p.checkUrgent || now.Sub(p.urgentAt) >= urgentEverySent
	default:
		p.urgent = p.checkUrgent || now.Sub(p.urgentAt) >= urgentEvery
	}
	if p.urgent {
		p.urgentAt = now
		return host.UrgentQueue(p.pool), d.urgent(), 0
	}
	switch {
	case d.runs == 0 && d.urgentRuns == 0:
		wait = longPoll
	case !p.foundUrgent:
		wait = urgentEveryShort
	}
	return host.WorkQueue(p.pool), d.work(), wait
}

func (p *alternatingPicker) found(n int) {
	p.checkUrgent = p.urgent == (n > 0)
	if p.urgent {
		p.foundUrgent = n > 0
	}
}
