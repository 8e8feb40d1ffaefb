package aws

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"time"

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"rollout/shared/fault"
	"rollout/shared/queue"
	"rollout/shared/retry"
)

const (
	// maxSend is the most bytes of one request, with room for attributes.
	maxSend        = 1<<20 - 4<<10
	base64Encoding = "base64"
)

// EncodingAttribute names the message attribute of a body that SQS would not
// take as it is; see DecodeBody.
const EncodingAttribute = "rollout-encoding"

// Send sends bodies in batches; see queue.Queues.
func (q *Queues) Send(ctx context.Context, name string, bodies [][]byte, delay time.Duration) error {
	if err := queue.CheckSend(name, bodies, delay); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil || len(bodies) == 0 {
		return fault.Wrap(err, "send to queue %s", name)
	}
	url, err := q.url(ctx, name)
	if err != nil {
		return err
	}
	entries := make([]types.SendMessageBatchRequestEntry, len(bodies))
	for i, b := range bodies {
		entries[i] = entry(b, delay)
	}
	for len(entries) > 0 {
		n, size := 0, 0
		for n < len(entries) && n < queue.MaxBatch && size+len(*entries[n].MessageBody) <= maxSend {
			entries[n].Id = awssdk.String(strconv.Itoa(n))
			size += len(*entries[n].MessageBody)
			n++
		}
		if err := q.sendBatch(ctx, name, url, entries[:n]); err != nil {
			return err
		}
		entries = entries[n:]
	}
	return nil
}

// entry makes a body a message. SQS takes the characters of XML 1.0 alone;
// other bodies travel in base64.
func entry(body []byte, delay time.Duration) types.SendMessageBatchRequestEntry {
	e := types.SendMessageBatchRequestEntry{MessageBody: awssdk.String(string(body)), DelaySeconds: seconds(delay)}
	if slices.ContainsFunc([]rune(*e.MessageBody), forbidden) {
		e.MessageBody = awssdk.String(base64.StdEncoding.EncodeToString(body))
		e.MessageAttributes = map[string]types.MessageAttributeValue{
			EncodingAttribute: {DataType: awssdk.String("String"), StringValue: awssdk.String(base64Encoding)},
		}
	}
	return e
}

func forbidden(r rune) bool {
	return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF
}

// DecodeBody returns the body of a message that a Queues sent: encoding is the
// value of its attribute EncodingAttribute, "" if it has none. Functions that
// get their messages from elsewhere than Receive need it.
func DecodeBody(body, encoding string) ([]byte, error) {
	switch encoding {
	case "":
		return []byte(body), nil
	case base64Encoding:
		b, err := base64.StdEncoding.DecodeString(body)
		return b, fault.WithKind(fault.Corrupt, err, "decode the message")
	}
	return nil, fault.New(fault.Corrupt, "decode the message: unknown encoding %.40q", encoding)
}

// sendBatch sends one batch. SQS may take some of it: what it failed to take by
// its own fault is sent again.
func (q *Queues) sendBatch(ctx context.Context, name, url string, entries []types.SendMessageBatchRequestEntry) error {
	err := retry.Policy{}.Do(ctx, func(int) error {
		out, err := q.sqs.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
		if err != nil {
			return permanent(q.translate(ctx, name, err, "send to queue %s", name))
		}
		err = q.failed(name, "send to", out.Failed)
		entries = slices.DeleteFunc(slices.Clone(entries), func(e types.SendMessageBatchRequestEntry) bool {
			return !slices.ContainsFunc(out.Failed, func(f types.BatchResultErrorEntry) bool { return awssdk.ToString(f.Id) == *e.Id })
		})
		return err
	})
	return unpermanent(err)
}

// Ack removes messages in batches; see queue.Queues.
func (q *Queues) Ack(ctx context.Context, name string, receipts []string) error {
	if err := queue.CheckName(name); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil || len(receipts) == 0 {
		return fault.Wrap(err, "ack in queue %s", name)
	}
	url, err := q.url(ctx, name)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(receipts, queue.MaxBatch) {
		var entries []types.DeleteMessageBatchRequestEntry
		for i, receipt := range batch {
			if receipt != "" {
				entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: awssdk.String(strconv.Itoa(i)), ReceiptHandle: awssdk.String(receipt)})
			}
		}
		if len(entries) == 0 {
			continue
		}
		if err := q.deleteBatch(ctx, name, url, entries); err != nil {
			return err
		}
	}
	return nil
}

// deleteBatch removes one batch. Receipts that do not hold are ignored.
func (q *Queues) deleteBatch(ctx context.Context, name, url string, entries []types.DeleteMessageBatchRequestEntry) error {
	err := retry.Policy{}.Do(ctx, func(int) error {
		out, err := q.sqs.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: entries})
		if staleReceipt(codeOf(err)) {
			return nil
		}
		if err != nil {
			return permanent(q.translate(ctx, name, err, "ack in queue %s", name))
		}
		left := slices.DeleteFunc(out.Failed, func(f types.BatchResultErrorEntry) bool { return staleReceipt(awssdk.ToString(f.Code)) })
		entries = slices.DeleteFunc(slices.Clone(entries), func(e types.DeleteMessageBatchRequestEntry) bool {
			return !slices.ContainsFunc(left, func(f types.BatchResultErrorEntry) bool { return awssdk.ToString(f.Id) == *e.Id })
		})
		return q.failed(name, "ack in", left)
	})
	return unpermanent(err)
}

// failed is the error about the entries that SQS did not take, nil for none:
// the first that is the sender's fault, else the first.
func (q *Queues) failed(name, what string, entries []types.BatchResultErrorEntry) error {
	if len(entries) == 0 {
		return nil
	}
	worst := entries[0]
	for _, e := range entries {
		if e.SenderFault {
			worst = e
			break
		}
	}
	kind, ok := kinds[awssdk.ToString(worst.Code)]
	switch {
	case !ok && worst.SenderFault:
		kind = fault.Invalid
	case !ok:
		kind = fault.Unavailable
	}
	return fault.WithKind(kind, fmt.Errorf("%s: %s", awssdk.ToString(worst.Code), awssdk.ToString(worst.Message)),
		"%s queue %s: %d messages failed", what, name, len(entries))
}
