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

// eventHandler is a function that is called asynchronously with one event.
type eventHandler = func(context.Context, json.RawMessage) error

// Timer returns a function that a schedule calls. It ignores the event.
func Timer(handle func(context.Context) error) eventHandler {
	return func(ctx context.Context, _ json.RawMessage) error {
		ctx, cancel := withMargin(ctx)
		defer cancel()
		return handle(ctx)
	}
}

// Invocations returns a function that is called asynchronously with one event of
// the product. It moves an event that can't be handled (Invalid) to the dead
// letters of the tasks queue. It returns other errors: Lambda then tries twice
// more, and moves the event there after the third failure. By then reclaim has
// asked again for the same work, or does so soon.
func Invocations(p host.Ports, handle func(context.Context, events.Payload) error) eventHandler {
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

// requestID is Lambda's id of the invocation; "" outside of one.
func requestID(ctx context.Context) string {
	if c, ok := lambdacontext.FromContext(ctx); ok {
		return c.AwsRequestID
	}
	return ""
}
