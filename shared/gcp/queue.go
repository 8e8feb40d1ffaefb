package gcp

import (
	"context"
	"time"

	pubsub "cloud.google.com/go/pubsub/v2/apiv1"
	pb "cloud.google.com/go/pubsub/v2/apiv1/pubsubpb"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/option"
	"google.golang.org/grpc/codes"

	"rollout/shared/clock"
	"rollout/shared/fault"
	"rollout/shared/queue"
)

// QueueOptions configure Queues.
type QueueOptions struct {
	// Prefix begins the names of all topics and subscriptions, such as "rollout-".
	// Names of Pub/Sub begin with a letter.
	Prefix string
	// AckDeadline is the ack deadline that the subscriptions were deployed with. A
	// Receive with that visibility needs no second request. 0: AckDeadline.
	AckDeadline time.Duration
	// ShortestPull is how long a Receive without a wait waits for an answer; 0 means
	// a second. A shorter pull may miss messages that are there.
	ShortestPull time.Duration
	// Clock tells when a delayed message is due; nil is the machine's clock.
	Clock clock.Clock
	// SDK are further options of the clients, for tests.
	SDK []option.ClientOption
}

// Queues are the topics of a project whose names begin with a prefix, each with a
// pull subscription of the same name. A deployment creates them; the dead letters of
// a queue go to the topic and subscription with the name of its dead-letter queue.
//
// Pub/Sub counts in seconds; fractions are rounded up. Where it promises less than
// other queues:
//
//   - A stale receipt may go unnoticed. Extend of one may succeed without an effect,
//     and Ack of one may remove the message.
//   - It has no delayed messages. A delayed one carries the time from which on it
//     counts; a receiver that gets it earlier hides it until then.
//   - The count of receives is approximate, and always 1 for a dead letter.
type Queues struct {
	topics        *pubsub.TopicAdminClient
	subscriptions *pubsub.SubscriptionAdminClient
	project       string
	options       QueueOptions
}

var _ queue.Queues = (*Queues)(nil)

const (
	// AckDeadline is the ack deadline of subscriptions: the visibility that workers
	// ask for.
	AckDeadline = 30 * time.Second
	// longestPull bounds one pull: Pub/Sub answers an empty one within a minute or two.
	longestPull = 50 * time.Second
	// pullPause is the shortest time between two pulls of one Receive.
	pullPause = 100 * time.Millisecond
	// queueTimeout bounds each other request with the SDK's repetitions of it.
	queueTimeout = 20 * time.Second
)

// NewQueues returns the queues. It sends no request. ctx is for the clients'
// construction only.
func NewQueues(ctx context.Context, cfg Config, o QueueOptions) (*Queues, error) {
	if o.AckDeadline == 0 {
		o.AckDeadline = AckDeadline
	}
	if o.ShortestPull == 0 {
		o.ShortestPull = time.Second
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	options := cfg.clientOptions(PubSubEmulatorVariable, o.SDK...)
	topics, err := pubsub.NewTopicAdminClient(ctx, options...)
	if err != nil {
		return nil, translate(ctx, err, "make the client of Pub/Sub")
	}
	subscriptions, err := pubsub.NewSubscriptionAdminClient(ctx, options...)
	if err != nil {
		return nil, translate(ctx, err, "make the client of Pub/Sub")
	}
	return &Queues{topics, subscriptions, cfg.Project, o}, nil
}

// topic returns the resource name of a queue's topic.
func (q *Queues) topic(name string) string {
	return "projects/" + q.project + "/topics/" + q.options.Prefix + name
}

// subscription returns the resource name of a queue's subscription.
func (q *Queues) subscription(name string) string {
	return "projects/" + q.project + "/subscriptions/" + q.options.Prefix + name
}

// Receive receives messages; see queue.Queues. It pulls until there is a message or
// the wait is over. A pull that ends by its time limit was empty.
func (q *Queues) Receive(ctx context.Context, name string, most int, visibility, wait time.Duration) (
	[]queue.Message, error,
) {
	if err := queue.CheckReceive(name, most, visibility, wait); err != nil {
		return nil, err
	}
	for began := time.Now(); ; {
		pulled := time.Now()
		patience := min(longestPull, max(q.options.ShortestPull, wait-time.Since(began)))
		got, err := q.pull(ctx, name, most, patience)
		if err != nil {
			return nil, err
		}
		due, err := q.lease(ctx, name, got, visibility)
		if err != nil || len(due) > 0 {
			return due, err
		}
		left := wait - time.Since(began)
		if left <= 0 && len(got) == 0 { // deferred messages may have hidden others
			return nil, nil
		}
		if err := pause(ctx, min(pullPause-time.Since(pulled), max(left, 0))); err != nil {
			return nil, fault.WithKind(fault.Canceled, err, "receive from queue %s", name)
		}
	}
}

// pause waits, unless ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pull sends one pull, which waits for at most that long. The SDK does not repeat
// it: an unreachable Pub/Sub would look like an empty queue until the time is over.
func (q *Queues) pull(ctx context.Context, name string, most int, patience time.Duration) (
	[]*pb.ReceivedMessage, error,
) {
	over := time.Now().Add(patience)
	inTime, cancel := context.WithDeadline(ctx, over)
	defer cancel()
	out, err := q.subscriptions.Pull(inTime, &pb.PullRequest{
		Subscription: q.subscription(name), MaxMessages: int32(most),
	}, gax.WithRetry(func() gax.Retryer { return gax.OnCodes(nil, gax.Backoff{}) }))
	// The service may end the call at the deadline before inTime does.
	if err != nil && ctx.Err() == nil && !time.Now().Before(over) {
		return nil, nil
	}
	return out.GetReceivedMessages(), q.translate(ctx, err, "receive from queue %s", name)
}

// lease hides received messages for the visibility and returns them, but those that
// are not due: it hides these until they are.
func (q *Queues) lease(ctx context.Context, name string, got []*pb.ReceivedMessage, visibility time.Duration) (
	due []queue.Message, err error,
) {
	hide := map[int32][]string{} // receipts, by the seconds for which to hide them
	for _, r := range got {
		hidden := visibility
		if early := notBefore(r.Message).Sub(q.options.Clock.Now()); early > 0 {
			hidden = min(early, queue.MaxVisibility)
		} else {
			due = append(due, received(r))
		}
		if n := seconds(hidden); n != seconds(q.options.AckDeadline) {
			hide[n] = append(hide[n], r.AckId)
		}
	}
	for n, receipts := range hide {
		if err := q.hide(ctx, name, receipts, n); err != nil {
			return nil, q.translate(ctx, err, "hide %d messages of queue %s", len(receipts), name)
		}
	}
	return due, nil
}

// received converts a message. A delayed one was delivered once before it was due.
func received(r *pb.ReceivedMessage) queue.Message {
	count := int(r.DeliveryAttempt)
	if !notBefore(r.Message).IsZero() {
		count--
	}
	return queue.Message{ID: r.Message.MessageId, Body: r.Message.Data, Receives: max(1, count), Receipt: r.AckId}
}

// Extend hides a message for longer; see queue.Queues. Pub/Sub may not notice that
// a receipt is stale.
func (q *Queues) Extend(ctx context.Context, name, receipt string, visibility time.Duration) error {
	if err := queue.CheckExtend(name, visibility); err != nil {
		return err
	}
	return q.change(ctx, name, receipt, visibility)
}

// Nack makes a message visible again after delay; see queue.Queues.
func (q *Queues) Nack(ctx context.Context, name, receipt string, delay time.Duration) error {
	if err := queue.CheckNack(name, delay); err != nil {
		return err
	}
	if err := q.change(ctx, name, receipt, delay); !fault.Is(err, fault.Conflict) {
		return err
	}
	return nil
}

// change moves the end of a message's visibility. A receipt that Pub/Sub does not
// know is Conflict.
func (q *Queues) change(ctx context.Context, name, receipt string, visibility time.Duration) error {
	if receipt == "" {
		return fault.New(fault.Conflict, "queue %s: the receipt is empty", name)
	}
	err := q.hide(ctx, name, []string{receipt}, seconds(visibility))
	if codeOf(err) == codes.InvalidArgument {
		return fault.WithKind(fault.Conflict, err, "queue %s: the receipt is not valid", name)
	}
	return q.translate(ctx, err, "hide a message of queue %s", name)
}

// translate adds a remedy for a missing queue to the common translation.
func (q *Queues) translate(ctx context.Context, err error, format string, args ...any) error {
	err = translate(ctx, err, format, args...)
	if own, ok := err.(*fault.Error); ok && own.Kind == fault.NotFound {
		own.Remedy = "deploy the installation, or check cloud.project and cloud.pubsub.prefix (" + q.options.Prefix + ")"
	}
	return err
}

// seconds returns d in seconds, rounded up.
func seconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }
