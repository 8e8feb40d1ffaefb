package queue

import (
	"context"
	"time"

	"rollout/shared/retry"
)

// Reliable returns the queues with retries of retriable faults. A Send whose reply
// was lost is sent again, so messages may be duplicated, which the port allows. A
// Receive whose reply was lost leaves its messages hidden until their visibility
// is over. The result is a Depther if q is one.
func Reliable(q Queues, p retry.Policy) Queues {
	r := reliable{q, p}
	if d, ok := q.(Depther); ok {
		return reliableDepther{r, d}
	}
	return r
}

type reliable struct {
	queues Queues
	policy retry.Policy
}

// reliableSendBatch bounds what one lost reply duplicates.
const reliableSendBatch = 100

func (r reliable) Send(ctx context.Context, queue string, bodies [][]byte, delay time.Duration) error {
	if err := CheckSend(queue, bodies, delay); err != nil {
		return err
	}
	for len(bodies) > 0 {
		n := min(len(bodies), reliableSendBatch)
		err := r.policy.Do(ctx, func(int) error { return r.queues.Send(ctx, queue, bodies[:n], delay) })
		if err != nil {
			return err
		}
		bodies = bodies[n:]
	}
	return nil
}

func (r reliable) Receive(
	ctx context.Context, queue string, max int, visibility, wait time.Duration,
) (msgs []Message, err error) {
	err = r.policy.Do(ctx, func(int) error {
		msgs, err = r.queues.Receive(ctx, queue, max, visibility, wait)
		return err
	})
	return msgs, err
}

func (r reliable) Extend(ctx context.Context, queue, receipt string, visibility time.Duration) error {
	return r.policy.Do(ctx, func(int) error { return r.queues.Extend(ctx, queue, receipt, visibility) })
}

func (r reliable) Ack(ctx context.Context, queue string, receipts []string) error {
	return r.policy.Do(ctx, func(int) error { return r.queues.Ack(ctx, queue, receipts) })
}

func (r reliable) Nack(ctx context.Context, queue, receipt string, delay time.Duration) error {
	return r.policy.Do(ctx, func(int) error { return r.queues.Nack(ctx, queue, receipt, delay) })
}

type reliableDepther struct {
	reliable
	depther Depther
}

func (r reliableDepther) Depth(ctx context.Context, queue string) (visible, hidden int, err error) {
	err = r.policy.Do(ctx, func(int) error {
		visible, hidden, err = r.depther.Depth(ctx, queue)
		return err
	})
	return visible, hidden, err
}
