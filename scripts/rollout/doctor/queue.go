package doctor

import (
	"context"
	crand "crypto/rand"
	"time"

	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/queue"
)

const (
	lease = 30 * time.Second
	// wait is one long poll.
	wait = 5 * time.Second
)

// message sends a message, receives it again under a lease and acknowledges it. It
// gives back the messages of a doctor that runs at the same time.
//
// The check has a queue of its own, which a deployment creates beside the
// product's. Functions and workers would take a message in one of theirs as work,
// and among their dead letters it would raise an alarm.
func message(queues queue.Queues) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		want := "rollout cloud doctor " + crand.Text()
		if err := queues.Send(ctx, host.DoctorQueue, [][]byte{[]byte(want)}, 0); err != nil {
			return "", fault.Wrap(err, "enqueue")
		}
		for {
			got, err := queues.Receive(ctx, host.DoctorQueue, queue.MaxBatch, lease, wait)
			if err != nil {
				return "", fault.Wrap(err, "dequeue")
			}
			mine := ""
			for _, m := range got {
				if string(m.Body) == want {
					mine = m.Receipt
					continue
				}
				if err := queues.Nack(ctx, host.DoctorQueue, m.Receipt, 0); err != nil {
					return "", fault.Wrap(err, "give back another's message")
				}
			}
			if mine == "" {
				continue
			}
			return "", fault.Wrap(queues.Ack(ctx, host.DoctorQueue, []string{mine}), "ack")
		}
	}
}
