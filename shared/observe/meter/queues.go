package meter

import (
	"context"
	"time"

	"rollout/shared/queue"
)

// Queues returns q with metrics of its calls. The result is a queue.Depther if q is one.
func (m *Meter) Queues(q queue.Queues) queue.Queues {
	if m == nil {
		return q
	}
	counted := queues{q, &m.ports}
	if d, ok := q.(queue.Depther); ok {
		return depther{counted, d}
	}
	return counted
}

type queues struct {
	queues queue.Queues
	meter  *ports
}

type depther struct {
	queues
	queue.Depther
}

func (q queues) called(operation, name string, start time.Time, err *error) {
	q.meter.queues.WithLabelValues(operation, name, code(*err)).Inc()
	q.meter.queuesTook.WithLabelValues(operation).Observe(since(start))
}

func (q queues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) (err error) {
	defer q.called("send", name, time.Now(), &err)
	if err = q.queues.Send(ctx, name, bodies, delay); err == nil {
		q.meter.messages.WithLabelValues(name, "sent").Add(float64(len(bodies)))
	}
	return err
}

func (q queues) Receive(ctx context.Context, name string, max int, visibility, wait time.Duration) (
	[]queue.Message, error,
) {
	ms, err := q.queues.Receive(ctx, name, max, visibility, wait)
	q.meter.queues.WithLabelValues("receive", name, code(err)).Inc()
	if len(ms) > 0 {
		q.meter.messages.WithLabelValues(name, "received").Add(float64(len(ms)))
	}
	return ms, err
}

func (q queues) Extend(ctx context.Context, name, receipt string, visibility time.Duration) (err error) {
	defer q.called("extend", name, time.Now(), &err)
	return q.queues.Extend(ctx, name, receipt, visibility)
}

func (q queues) Ack(ctx context.Context, name string, receipts []string) (err error) {
	defer q.called("ack", name, time.Now(), &err)
	return q.queues.Ack(ctx, name, receipts)
}

func (q queues) Nack(ctx context.Context, name, receipt string, delay time.Duration) (err error) {
	defer q.called("nack", name, time.Now(), &err)
	return q.queues.Nack(ctx, name, receipt, delay)
}
