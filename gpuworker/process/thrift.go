package process

import (
	"context"
	"time"

	"rollout/gpuworker/worker"
)

// Where every request to a queue costs money, one waits for work as long as it
// can, and what is sent gathers for longer.
const (
	longPoll = 20 * time.Second
	gather   = time.Second
)

func (o Options) longPoll() time.Duration { return o.inCloud(longPoll) }

func (o Options) gather() time.Duration { return o.inCloud(gather) }

// inCloud is d in a cloud, and 0 elsewhere.
func (o Options) inCloud(d time.Duration) time.Duration {
	if o.Deployment.Cloud.Provider == "" {
		return 0
	}
	return d
}

// retire drains the worker when it has had no work for so long; 0 is never. It
// reports whether this was why, once ctx has ended.
func retire(ctx context.Context, w *worker.Worker, idle time.Duration) (retired bool) {
	if idle == 0 {
		return false
	}
	for left := idle; ; {
		select {
		case <-time.After(left):
		case <-ctx.Done():
			return false
		}
		if left, retired = w.Retire(idle); retired {
			return true
		}
	}
}
