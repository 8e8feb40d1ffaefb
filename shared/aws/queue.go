package aws

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"rollout/shared/fault"
	"rollout/shared/queue"
)

// QueueOptions are what Queues are not told by their port.
type QueueOptions struct {
	// Prefix begins the names of all queues, such as "rollout-". SQS takes
	// names of 80 characters, of which the port's may have 69.
	Prefix string
	// CreateMissing makes queues that are not there, with their dead letters; else they
	// are NotFound, because a deployment makes its own.
	CreateMissing bool
	// Poll is the longest wait of one request; 0 is SQS's most, 20 s.
	Poll time.Duration
	// AlwaysLongPoll has a Receive that waits for nothing wait for a second, as SQS
	// then asks all of its servers and not a sample of them, which may miss
	// messages that are there.
	AlwaysLongPoll bool
	// SDK are further options of the client, for tests.
	SDK []func(*sqs.Options)
}

// Queues are SQS's standard queues with a common prefix. SQS counts in seconds:
// shorter times are rounded up.
type Queues struct {
	sqs     *sqs.Client
	options QueueOptions

	mu   sync.Mutex
	urls map[string]string
}

var (
	_ queue.Queues  = (*Queues)(nil)
	_ queue.Depther = (*Queues)(nil)
)

const (
	longestPoll = 20 * time.Second
	// retention is SQS's longest: a paused run may need its messages.
	retention = 14 * 24 * time.Hour
)

// NewQueues returns the queues; it asks for nothing yet.
func NewQueues(cfg awssdk.Config, o QueueOptions) *Queues {
	o.Poll = min(cmp.Or(o.Poll, longestPoll), longestPoll)
	return &Queues{sqs: sqs.NewFromConfig(cfg, o.SDK...), options: o, urls: map[string]string{}}
}

// Receive receives messages; see queue.Queues. SQS gives ten at once: more are
// asked for as long as it gives ten.
func (q *Queues) Receive(ctx context.Context, name string, most int, visibility, wait time.Duration) ([]queue.Message, error) {
	if err := queue.CheckReceive(name, most, visibility, wait); err != nil {
		return nil, err
	}
	if q.options.AlwaysLongPoll {
		wait = max(wait, time.Second)
	}
	url, err := q.url(ctx, name)
	if err != nil {
		return nil, err
	}
	var got []queue.Message
	for began := time.Now(); ; {
		ask := min(queue.MaxBatch, most-len(got))
		poll := time.Duration(0)
		if len(got) == 0 {
			poll = min(q.options.Poll, max(0, wait-time.Since(began)))
		}
		out, err := q.sqs.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &url, MaxNumberOfMessages: int32(ask), VisibilityTimeout: seconds(visibility), WaitTimeSeconds: seconds(poll),
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameApproximateReceiveCount},
			MessageAttributeNames:       []string{EncodingAttribute},
		})
		switch {
		case err != nil && len(got) > 0: // those count; the error will come again
			return got, nil
		case err != nil:
			return nil, q.translate(ctx, name, err, "receive from queue %s", name)
		}
		for _, m := range out.Messages {
			got = append(got, received(m))
		}
		full := len(out.Messages) == ask
		if len(got) >= most || len(got) > 0 && !full || len(got) == 0 && time.Since(began) >= wait {
			return got, nil
		}
	}
}

// received reads a message. A body that can't be decoded is left as it came,
// for whoever reads it to bury.
func received(m types.Message) queue.Message {
	count, err := strconv.Atoi(m.Attributes[string(types.MessageSystemAttributeNameApproximateReceiveCount)])
	if err != nil || count < 1 {
		count = 1
	}
	body, err := DecodeBody(awssdk.ToString(m.Body), awssdk.ToString(m.MessageAttributes[EncodingAttribute].StringValue))
	if err != nil {
		body = []byte(awssdk.ToString(m.Body))
	}
	return queue.Message{ID: awssdk.ToString(m.MessageId), Body: body, Receives: count, Receipt: awssdk.ToString(m.ReceiptHandle)}
}

// Extend hides a message for longer; see queue.Queues.
func (q *Queues) Extend(ctx context.Context, name, receipt string, visibility time.Duration) error {
	if err := queue.CheckExtend(name, visibility); err != nil {
		return err
	}
	return q.hide(ctx, name, receipt, visibility)
}

// Nack shows a message again; see queue.Queues.
func (q *Queues) Nack(ctx context.Context, name, receipt string, delay time.Duration) error {
	if err := queue.CheckNack(name, delay); err != nil {
		return err
	}
	if err := q.hide(ctx, name, receipt, delay); !fault.Is(err, fault.Conflict) {
		return err
	}
	return nil
}

// hide sets a message's visibility. A receipt that does not hold is Conflict:
// SQS calls it by one of its codes, or a parameter without value.
func (q *Queues) hide(ctx context.Context, name, receipt string, visibility time.Duration) error {
	if receipt == "" {
		return fault.New(fault.Conflict, "queue %s: the empty receipt holds nothing", name)
	}
	url, err := q.url(ctx, name)
	if err != nil {
		return err
	}
	_, err = q.sqs.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{QueueUrl: &url, ReceiptHandle: &receipt, VisibilityTimeout: seconds(visibility)})
	if staleReceipt(codeOf(err)) {
		return fault.WithKind(fault.Conflict, err, "queue %s: the receipt does not hold any more", name)
	}
	return q.translate(ctx, name, err, "hide a message of queue %s", name)
}

// staleReceipt reports whether SQS answers so to a receipt that does not hold.
func staleReceipt(code string) bool {
	switch code {
	case "InvalidParameterValue", "InvalidParameterValueException", "MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight", "ReceiptHandleIsInvalid":
		return true
	}
	return false
}

// Depth counts about right; see queue.Depther.
func (q *Queues) Depth(ctx context.Context, name string) (visible, hidden int, err error) {
	if err := queue.CheckName(name); err != nil {
		return 0, 0, err
	}
	url, err := q.url(ctx, name)
	if err != nil {
		return 0, 0, err
	}
	names := []types.QueueAttributeName{types.QueueAttributeNameApproximateNumberOfMessages,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible, types.QueueAttributeNameApproximateNumberOfMessagesDelayed}
	out, err := q.sqs.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{QueueUrl: &url, AttributeNames: names})
	if err != nil {
		return 0, 0, q.translate(ctx, name, err, "depth of queue %s", name)
	}
	counts := make([]int, len(names))
	for i, n := range names {
		if counts[i], err = strconv.Atoi(cmp.Or(out.Attributes[string(n)], "0")); err != nil {
			return 0, 0, fault.WithKind(fault.Corrupt, err, "depth of queue %s: %s", name, n)
		}
	}
	return counts[0], counts[1] + counts[2], nil
}

// seconds rounds up.
func seconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }
