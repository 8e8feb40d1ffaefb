package lambda

import (
	"context"
	"encoding/json"

	"github.com/aws/aws-lambda-go/lambdacontext"

	"rollout/events"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/queue"
)

// Invocations is a function that is called with one event at a time, and that nobody
// waits for. What can't be acted on goes to the dead letters of tasks, once and
// for all. What failed is returned: Lambda tries twice more, and sends what
// fails for the third time there, too; by then reclaim has asked anew for what
// the event was about, or soon does.
func Invocations(p host.Ports, handle func(context.Context, events.Payload) error) func(context.Context, json.RawMessage) error {
	return func(ctx context.Context, event json.RawMessage) error {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		e, payload, err := events.Decode(event)
		if err = fault.WithKind(fault.Invalid, err, "decode the event"); err == nil {
			err = handle(host.WithCause(observe.ContextWithTraceparent(ctx, e.Traceparent), e), payload)
		}
		if fault.Is(err, fault.Invalid) {
			err = p.DeadLetter(ctx, host.TaskQueue, queue.Message{ID: requestID(ctx), Body: event}, err)
		}
		return err
	}
}

// requestID is the id that Lambda gave the invocation; "" outside of one.
func requestID(ctx context.Context) string {
	if c, ok := lambdacontext.FromContext(ctx); ok {
		return c.AwsRequestID
	}
	return ""
}
