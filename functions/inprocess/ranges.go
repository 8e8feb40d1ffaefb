package inprocess

import (
	"context"
	"sync"
	"sync/atomic"

	"rollout/events"
	"rollout/shared/host"
	"rollout/shared/observe"
)

// smallRange is the size of ranges, in bytes, that are cut side by side: those of a run of many
// small files, of which each waits for the synced writes of some small objects.
const smallRange = 1 << 20

// smallRanges is how many small ranges a consumer cuts at once.
const smallRanges = 8

// consumeRanges handles the messages of the plan queue: one at a time, or several while all are
// of small ranges. A large range among them is cut alone.
func (s *System) consumeRanges(ctx context.Context) {
	for batch := 1; ctx.Err() == nil; {
		ms, err := s.Queues.Receive(ctx, host.PlanQueue, batch, s.visibility, longPoll)
		if err != nil {
			s.warn(ctx, "can't receive from a queue", err, observe.KeyQueue, host.PlanQueue)
			sleep(ctx, retryAfter)
			continue
		}
		var all sync.WaitGroup
		var alone sync.Mutex
		var large atomic.Bool
		for _, m := range ms {
			all.Go(func() {
				s.deliver(ctx, host.PlanQueue, m, func(ctx context.Context, p events.Payload) error {
					if r, ok := p.(events.PlanRange); ok && r.Limit-r.Offset > smallRange {
						large.Store(true)
						alone.Lock() // while it waits, its message stays hidden
						defer alone.Unlock()
					}
					return s.dispatch(ctx, p)
				})
			})
		}
		all.Wait()
		if batch = smallRanges; large.Load() {
			batch = 1
		}
	}
}
