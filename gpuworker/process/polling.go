package process

import (
	"context"
	"time"

	"rollout/gpuworker/worker"
	"rollout/shared/host"
)

// Where every request to a queue costs money, one waits for work as long as it
// can, and what is sent gathers for longer.
const (
	longPoll = 20 * time.Second
	gather   = 5 * time.Second
)

func (o Options) longPoll() time.Duration { return o.inCloud(longPoll) }

// gather is a small part of how long a message stays hidden: it is taken by
// then, and must not come back.
func (o Options) gather() time.Duration {
	return o.inCloud(min(gather, host.Timings(o.Deployment.Health).Visibility()/3))
}

// inCloud is d in a cloud, and 0 elsewhere.
func (o Options) inCloud(d time.Duration) time.Duration {
	if o.Deployment.Cloud.Provider == "" {
		return 0
	}
	return d
}

// retire drains the worker when it has had no work for so long, or could not
// take any; 0 is never. It returns which of them was why, once ctx has ended,
// and "" if neither was.
func retire(ctx context.Context, w *worker.Worker, idle time.Duration) ExitReason {
	if idle == 0 {
		return ""
	}
	for left := idle; ; {
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return ""
		}
		why := Idle
		if !w.ExecutorReady() {
			why = Unusable
		}
		var retired bool
		if left, retired = w.DrainIfIdle(idle); retired {
			return why
		}
	}
}
