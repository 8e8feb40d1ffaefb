package host

import (
	"context"

	"rollout/events"
)

// causeKey is where a context carries the event that is being handled.
type causeKey struct{}

// WithCause returns a context in which whatever is sent was caused by the event.
// Functions handle events in one: after events.MaxHops of them, each of which
// caused the next, sending is Invalid, so that functions that feed each other
// come to an end (I8). Workers, timers and users begin anew.
func WithCause(ctx context.Context, by events.Envelope) context.Context {
	return context.WithValue(ctx, causeKey{}, by)
}

// nextMeta is what is known before of an event that is sent in the context.
func nextMeta(ctx context.Context) (events.Meta, error) {
	if by, ok := ctx.Value(causeKey{}).(events.Envelope); ok {
		return by.Next()
	}
	return events.Meta{}, nil
}
