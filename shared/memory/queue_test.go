package memory_test

import (
	"testing"
	"time"

	"rollout/shared/clock"
	"rollout/shared/memory"
	"rollout/shared/queue"
	"rollout/shared/queue/queuetest"
)

func TestQueues(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]clock.Clock{
		"exact clock": clock.System{},
		"fast clock":  clock.Skewed{Offset: time.Hour},
		"slow clock":  clock.Skewed{Offset: -time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			queuetest.Run(t,
				func(*testing.T) queue.Queues { return memory.NewQueues(c) },
				queuetest.Features{Depth: true, Synctest: true})
		})
	}
}

func TestReliableQueues(t *testing.T) {
	t.Parallel()
	queuetest.Run(t,
		func(*testing.T) queue.Queues { return queue.Reliable(memory.NewQueues(clock.System{}), retryOnce()) },
		queuetest.Features{Depth: true, Synctest: true})
}
