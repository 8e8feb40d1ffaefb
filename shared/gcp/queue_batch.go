package gcp

import (
	"context"
	"iter"
	"time"

	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"rollout/shared/fault"
	"rollout/shared/queue"
)

// Limits of one request. Pub/Sub accepts 1,000 messages and 10 MB in a Publish, and
// 512 KiB of acknowledgement ids, of which each has some 200 bytes.
const (
	maxMessages     = 1000
	maxPublishBytes = 9 << 20
	maxReceiptBytes = 480 << 10
	itemOverhead    = 16 // bytes of an item in a request, beside its own
)

// NotBeforeAttribute names the attribute of a delayed message with the time from
// which on it counts, in RFC 3339.
const NotBeforeAttribute = "rollout-not-before"

// Send publishes bodies in batches; see queue.Queues.
func (q *Queues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	if err := queue.CheckSend(name, bodies, delay); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fault.Wrap(err, "send to queue %s", name)
	}
	var attributes map[string]string
	if delay > 0 {
		due := q.options.Clock.Now().Add(delay)
		attributes = map[string]string{NotBeforeAttribute: due.UTC().Format(time.RFC3339Nano)}
	}
	messages := make([]*pb.PubsubMessage, len(bodies))
	for i, body := range bodies {
		messages[i] = &pb.PubsubMessage{Data: body, Attributes: attributes}
	}
	size := func(m *pb.PubsubMessage) int { return proto.Size(m) }
	for batch := range batches(messages, size, maxPublishBytes) {
		inTime, cancel := context.WithTimeout(ctx, queueTimeout)
		_, err := q.topics.Publish(inTime, &pb.PublishRequest{Topic: q.topic(name), Messages: batch})
		cancel()
		if err != nil {
			return q.translate(ctx, err, "send to queue %s", name)
		}
	}
	return nil
}

// notBefore returns the time from which on a message counts, the zero time for a
// message that was not delayed.
func notBefore(m *pb.PubsubMessage) time.Time {
	t, err := time.Parse(time.RFC3339Nano, m.Attributes[NotBeforeAttribute])
	if err != nil {
		return time.Time{}
	}
	return t
}

// batches cuts items into batches of at most maxMessages items and most bytes. An
// item alone may have more.
func batches[T any](items []T, size func(T) int, most int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(items) > 0 {
			n, bytes := 0, 0
			for n < min(len(items), maxMessages) {
				bytes += size(items[n]) + itemOverhead
				if bytes > most && n > 0 {
					break
				}
				n++
			}
			if !yield(items[:n]) {
				return
			}
			items = items[n:]
		}
	}
}

func receiptSize(receipt string) int { return len(receipt) }

// hide sets the ack deadline of messages, from now on.
func (q *Queues) hide(ctx context.Context, name string, receipts []string, seconds int32) error {
	for batch := range batches(receipts, receiptSize, maxReceiptBytes) {
		inTime, cancel := context.WithTimeout(ctx, queueTimeout)
		err := q.subscriptions.ModifyAckDeadline(inTime, &pb.ModifyAckDeadlineRequest{
			Subscription: q.subscription(name), AckIds: batch, AckDeadlineSeconds: seconds,
		})
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// Ack removes messages in batches; see queue.Queues. If Pub/Sub refuses a batch for
// one receipt, Ack removes its messages one by one, and ignores those that Pub/Sub
// does not know.
func (q *Queues) Ack(ctx context.Context, name string, receipts []string) error {
	if err := queue.CheckName(name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fault.Wrap(err, "ack in queue %s", name)
	}
	for batch := range batches(receipts, receiptSize, maxReceiptBytes) {
		err := q.acknowledge(ctx, name, batch)
		if codeOf(err) == codes.InvalidArgument {
			err = q.ackEach(ctx, name, batch)
		}
		if err != nil {
			return q.translate(ctx, err, "ack in queue %s", name)
		}
	}
	return nil
}

func (q *Queues) ackEach(ctx context.Context, name string, receipts []string) error {
	for _, receipt := range receipts {
		if receipt == "" {
			continue
		}
		err := q.acknowledge(ctx, name, []string{receipt})
		if err != nil && codeOf(err) != codes.InvalidArgument {
			return err
		}
	}
	return nil
}

// acknowledge sends one request.
func (q *Queues) acknowledge(ctx context.Context, name string, receipts []string) error {
	inTime, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	return q.subscriptions.Acknowledge(inTime,
		&pb.AcknowledgeRequest{Subscription: q.subscription(name), AckIds: receipts})
}
