package process

import (
	"time"

	"rollout/shared/host"
)

// Where each request to a queue is billed, a worker waits for work as long as the
// queue allows, and gathers messages for longer before it sends them.
const (
	longPoll = 20 * time.Second
	gather   = 5 * time.Second
)

// longPoll is how long a receive waits at the queue's service; 0 asks at once.
func (o Options) longPoll() time.Duration {
	if !o.Capabilities.LongPoll {
		return 0
	}
	return longPoll
}

// gather is how long messages wait for others before they are sent or
// acknowledged; 0 is not at all. It is a small part of how long a received
// message stays hidden, so that none comes back meanwhile.
func (o Options) gather() time.Duration {
	if !o.Capabilities.BilledQueues {
		return 0
	}
	return min(gather, host.Timings(o.Deployment.Health).Visibility()/3)
}
