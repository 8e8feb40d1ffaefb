package cloudrun

import (
	"context"

	"rollout/events"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/queue"
)

// Tasks returns the handler of a subscription with events of the product. It moves
// an event that can't be handled (Invalid) to the dead letters of the tasks queue.
func Tasks(p host.Ports, handle func(context.Context, events.Payload) error) Handler {
	return func(ctx context.Context, m Push) error {
		e, payload, err := events.Decode(m.Data)
		if err = fault.WithKind(fault.Invalid, err, "decode the event"); err == nil {
			err = handle(host.WithCause(observe.ContextWithTraceparent(ctx, e.Traceparent), e), payload)
		}
		if fault.Is(err, fault.Invalid) {
			return p.DeadLetter(ctx, host.TaskQueue, queue.Message{ID: m.ID, Body: m.Data}, err)
		}
		return err
	}
}
