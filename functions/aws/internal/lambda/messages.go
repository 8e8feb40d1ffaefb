package lambda

import (
	"context"
	"slices"
	"strconv"

	lambdaevents "github.com/aws/aws-lambda-go/events"

	"rollout/shared/aws"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/queue"
)

// batchHandler is a function that SQS calls.
type batchHandler = func(context.Context, lambdaevents.SQSEvent) (lambdaevents.SQSEventResponse, error)

// Messages returns a function that a queue calls with batches. handle returns the
// receipts of the messages that are done; the others are delivered again. The
// queue's event source mapping must report batch item failures.
func Messages(p host.Ports, handle func(context.Context, []queue.Message) (done []string)) batchHandler {
	return func(ctx context.Context, e lambdaevents.SQSEvent) (lambdaevents.SQSEventResponse, error) {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		messages, traces := make([]queue.Message, len(e.Records)), make(traceHeaders, len(e.Records))
		for i, r := range e.Records {
			messages[i] = message(r)
			traces[r.MessageId] = r.Attributes[aws.TraceAttribute]
		}
		done := handle(context.WithValue(ctx, traceHeadersKey{}, traces), messages)
		// With a null list, Lambda would take the response for an invalid one.
		out := lambdaevents.SQSEventResponse{BatchItemFailures: []lambdaevents.SQSBatchItemFailure{}}
		for _, m := range messages {
			if !slices.Contains(done, m.Receipt) {
				failure := lambdaevents.SQSBatchItemFailure{ItemIdentifier: m.ID}
				out.BatchItemFailures = append(out.BatchItemFailures, failure)
			}
		}
		if n := len(out.BatchItemFailures); n > 0 {
			p.Log.WarnContext(ctx, "messages are delivered again", "messages", n, "of", len(messages),
				observe.KeyReason, "not done")
		}
		return out, nil
	}
}

// traceHeaders are the trace headers of a batch's messages, by message id.
type traceHeaders map[string]string

// traceHeadersKey is the context key of a batch's trace headers.
type traceHeadersKey struct{}

// ContinueChain returns a context for what a function of Messages does because of one
// message of its batch. What it sends continues the chain of that message alone, not
// the chains of its neighbours; see aws.ContinueChain.
func ContinueChain(ctx context.Context, m queue.Message) context.Context {
	traces, _ := ctx.Value(traceHeadersKey{}).(traceHeaders)
	return aws.ContinueChain(ctx, traces[m.ID])
}

// message decodes a message. A body that can't be decoded stays as it is: its
// handler dead-letters it.
func message(r lambdaevents.SQSMessage) queue.Message {
	receives, err := strconv.Atoi(r.Attributes["ApproximateReceiveCount"])
	if err != nil || receives < 1 {
		receives = 1
	}
	encoding := ""
	if a := r.MessageAttributes[aws.EncodingAttribute].StringValue; a != nil {
		encoding = *a
	}
	body, err := aws.DecodeBody(r.Body, encoding)
	if err != nil {
		body = []byte(r.Body)
	}
	return queue.Message{ID: r.MessageId, Body: body, Receives: receives, Receipt: r.ReceiptHandle}
}
