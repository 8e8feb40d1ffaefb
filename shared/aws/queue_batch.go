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
	// maxSend is the most bytes of bodies in one request. SQS's limit is 1 MiB; the
	// rest is for attributes.
	maxSend        = 1<<20 - 4<<10
	base64Encoding = "base64"
)

// EncodingAttribute names the message attribute that gives the encoding of a body
// that SQS would refuse unencoded; see DecodeBody.
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
		entries[i] = newEntry(b, delay)
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

// newEntry makes a message of a body. SQS accepts only the characters of XML 1.0;
// other bodies travel in base64.
func newEntry(body []byte, delay time.Duration) types.SendMessageBatchRequestEntry {
	e := types.SendMessageBatchRequestEntry{MessageBody: awssdk.String(string(body)), DelaySeconds: seconds(delay)}
	if slices.ContainsFunc([]rune(*e.MessageBody), notXML) {
		e.MessageBody = awssdk.String(base64.StdEncoding.EncodeToString(body))
		e.MessageAttributes = map[string]types.MessageAttributeValue{
			EncodingAttribute: {DataType: awssdk.String("String"), StringValue: awssdk.String(base64Encoding)},
		}
	}
	return e
}

// notXML reports whether XML 1.0 excludes the character.
func notXML(r rune) bool {
	return r < ' ' && r != '\t' && r != '\n' && r != '\r' || r == 0xFFFE || r == 0xFFFF
}

// DecodeBody returns the body of a message that Queues sent. encoding is the value
// of the message's EncodingAttribute, "" if the message lacks it. Receive decodes
// bodies itself; functions that Lambda calls with messages need DecodeBody.
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

// sendBatch sends one batch. SQS may accept a part of it; sendBatch retries the
// entries that failed by a fault of SQS.
func (q *Queues) sendBatch(
	ctx context.Context, name, url string, entries []types.SendMessageBatchRequestEntry,
) error {
	err := retry.Policy{}.Do(ctx, func(int) error {
		out, err := q.sqs.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: &url, Entries: entries})
		if err != nil {
			return permanent(q.translate(ctx, name, err, "send to queue %s", name))
		}
		err = q.failed(name, "send to", out.Failed)
		entries = slices.DeleteFunc(slices.Clone(entries), func(e types.SendMessageBatchRequestEntry) bool {
			return !hasID(out.Failed, *e.Id)
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
				id := awssdk.String(strconv.Itoa(i))
				entries = append(entries, types.DeleteMessageBatchRequestEntry{Id: id, ReceiptHandle: &receipt})
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

// deleteBatch removes one batch. It ignores expired receipts and retries the
// entries that failed by a fault of SQS. If SQS refuses the whole batch for one receipt, it
// removes the messages one by one.
func (q *Queues) deleteBatch(
	ctx context.Context, name, url string, entries []types.DeleteMessageBatchRequestEntry,
) error {
	err := retry.Policy{}.Do(ctx, func(int) error {
		out, err := q.sqs.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: &url, Entries: entries})
		if staleReceipt(codeOf(err)) {
			return permanent(q.deleteEach(ctx, name, url, entries))
		}
		if err != nil {
			return permanent(q.translate(ctx, name, err, "ack in queue %s", name))
		}
		left := slices.DeleteFunc(out.Failed, func(f types.BatchResultErrorEntry) bool {
			return staleReceipt(awssdk.ToString(f.Code))
		})
		entries = slices.DeleteFunc(slices.Clone(entries), func(e types.DeleteMessageBatchRequestEntry) bool {
			return !hasID(left, *e.Id)
		})
		return q.failed(name, "ack in", left)
	})
	return unpermanent(err)
}

// deleteEach removes messages one by one. It ignores expired receipts.
func (q *Queues) deleteEach(
	ctx context.Context, name, url string, entries []types.DeleteMessageBatchRequestEntry,
) error {
	for _, e := range entries {
		_, err := q.sqs.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: e.ReceiptHandle})
		if err != nil && !staleReceipt(codeOf(err)) {
			return q.translate(ctx, name, err, "ack in queue %s", name)
		}
	}
	return nil
}

// hasID reports whether one of the failed entries has the id.
func hasID(failed []types.BatchResultErrorEntry, id string) bool {
	return slices.ContainsFunc(failed, func(f types.BatchResultErrorEntry) bool { return awssdk.ToString(f.Id) == id })
}

// failed returns the error about the entries that SQS refused, nil for an empty
// slice. It reports the first entry that is the sender's fault, else the first.
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
