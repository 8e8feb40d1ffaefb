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

// QueueOptions configure Queues.
type QueueOptions struct {
	// Prefix begins the names of all queues, such as "rollout-". SQS allows names
	// of 80 characters; the port's names may have 69 of them.
	Prefix string
	// CreateMissing creates missing queues, each with its dead-letter queue.
	// Otherwise a missing queue is NotFound: a deployment creates its own.
	CreateMissing bool
	// Poll is the longest wait of one request; 0 means SQS's maximum, 20 s.
	Poll time.Duration
	// AlwaysLongPoll makes a Receive without a wait wait for one second. SQS then
	// queries all of its servers; a short poll queries a sample, which may miss
	// available messages.
	AlwaysLongPoll bool
	// SDK are further options of the client, for tests.
	SDK []func(*sqs.Options)
}

// Queues are standard queues of SQS with a common name prefix. SQS counts in
// seconds; fractions are rounded up.
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
	// retention is SQS's maximum: a paused run may need its messages later.
	retention = 14 * 24 * time.Hour
)

// NewQueues returns the queues; it sends no request.
func NewQueues(cfg awssdk.Config, o QueueOptions) *Queues {
	o.Poll = min(cmp.Or(o.Poll, longestPoll), longestPoll)
	return &Queues{sqs: sqs.NewFromConfig(cfg, o.SDK...), options: o, urls: map[string]string{}}
}

// Receive receives messages; see queue.Queues. SQS returns at most ten at once,
// so Receive requests more as long as a response is full.
func (q *Queues) Receive(ctx context.Context, name string, most int, visibility, wait time.Duration) (
	[]queue.Message, error,
) {
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
			QueueUrl:                    &url,
			MaxNumberOfMessages:         int32(ask),
			VisibilityTimeout:           seconds(visibility),
			WaitTimeSeconds:             seconds(poll),
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{receiveCount},
			MessageAttributeNames:       []string{EncodingAttribute},
		})
		switch {
		case err != nil && len(got) > 0: // return what arrived; a lasting error will recur
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

// receiveCount is the attribute with the number of deliveries of a message.
const receiveCount = types.MessageSystemAttributeNameApproximateReceiveCount

// received converts a message. A body that cannot be decoded stays encoded; its
// consumer then fails to parse it and dead-letters the message.
func received(m types.Message) queue.Message {
	count, err := strconv.Atoi(m.Attributes[string(receiveCount)])
	if err != nil || count < 1 {
		count = 1
	}
	encoding := awssdk.ToString(m.MessageAttributes[EncodingAttribute].StringValue)
	body, err := DecodeBody(awssdk.ToString(m.Body), encoding)
	if err != nil {
		body = []byte(awssdk.ToString(m.Body))
	}
	return queue.Message{
		ID: awssdk.ToString(m.MessageId), Body: body, Receives: count, Receipt: awssdk.ToString(m.ReceiptHandle),
	}
}

// Extend hides a message for longer; see queue.Queues.
func (q *Queues) Extend(ctx context.Context, name, receipt string, visibility time.Duration) error {
	if err := queue.CheckExtend(name, visibility); err != nil {
		return err
	}
	return q.hide(ctx, name, receipt, visibility)
}

// Nack makes a message visible again after delay; see queue.Queues.
func (q *Queues) Nack(ctx context.Context, name, receipt string, delay time.Duration) error {
	if err := queue.CheckNack(name, delay); err != nil {
		return err
	}
	if err := q.hide(ctx, name, receipt, delay); !fault.Is(err, fault.Conflict) {
		return err
	}
	return nil
}

// hide sets the visibility timeout of a message. An expired or unknown receipt is
// Conflict.
func (q *Queues) hide(ctx context.Context, name, receipt string, visibility time.Duration) error {
	if receipt == "" {
		return fault.New(fault.Conflict, "queue %s: the receipt is empty", name)
	}
	url, err := q.url(ctx, name)
	if err != nil {
		return err
	}
	_, err = q.sqs.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: &url, ReceiptHandle: &receipt, VisibilityTimeout: seconds(visibility),
	})
	if staleReceipt(codeOf(err)) {
		return fault.WithKind(fault.Conflict, err, "queue %s: the receipt has expired", name)
	}
	return q.translate(ctx, name, err, "hide a message of queue %s", name)
}

// staleReceipt reports whether code is one of SQS's errors for an expired receipt.
func staleReceipt(code string) bool {
	switch code {
	case "InvalidParameterValue", "InvalidParameterValueException", "MessageNotInflight",
		"AWS.SimpleQueueService.MessageNotInflight", "ReceiptHandleIsInvalid":
		return true
	}
	return false
}

// Depth returns SQS's approximate counts; see queue.Depther. Delayed messages
// count as hidden.
func (q *Queues) Depth(ctx context.Context, name string) (visible, hidden int, err error) {
	if err := queue.CheckName(name); err != nil {
		return 0, 0, err
	}
	url, err := q.url(ctx, name)
	if err != nil {
		return 0, 0, err
	}
	names := []types.QueueAttributeName{
		types.QueueAttributeNameApproximateNumberOfMessages,
		types.QueueAttributeNameApproximateNumberOfMessagesNotVisible,
		types.QueueAttributeNameApproximateNumberOfMessagesDelayed,
	}
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

// seconds returns d in seconds, rounded up.
func seconds(d time.Duration) int32 { return int32((d + time.Second - 1) / time.Second) }
