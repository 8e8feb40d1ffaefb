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

// Messages is a function that a queue calls with batches. handle returns the
// receipts of the messages that are done with; the others come back. The
// mapping must report batch item failures.
func Messages(p host.Ports, handle func(context.Context, []queue.Message) (done []string)) func(context.Context, lambdaevents.SQSEvent) (lambdaevents.SQSEventResponse, error) {
	return func(ctx context.Context, e lambdaevents.SQSEvent) (lambdaevents.SQSEventResponse, error) {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		messages := make([]queue.Message, len(e.Records))
		for i, r := range e.Records {
			messages[i] = message(r)
		}
		done := handle(ctx, messages)
		// A list that is null would be taken for a response that is none.
		out := lambdaevents.SQSEventResponse{BatchItemFailures: []lambdaevents.SQSBatchItemFailure{}}
		for _, m := range messages {
			if !slices.Contains(done, m.Receipt) {
				out.BatchItemFailures = append(out.BatchItemFailures, lambdaevents.SQSBatchItemFailure{ItemIdentifier: m.ID})
			}
		}
		if n := len(out.BatchItemFailures); n > 0 {
			p.Log.WarnContext(ctx, "messages come back", "messages", n, "of", len(messages), observe.KeyReason, "not done with")
		}
		return out, nil
	}
}

// message reads a message. A body that can't be decoded is left as it came, for
// its handler to bury.
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
