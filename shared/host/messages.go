package host

import (
	"context"

	"rollout/events"
	"rollout/shared/fault"
	"rollout/shared/observe"
	"rollout/shared/queue"
)

// Names of the queues.
const (
	CoordinateQueue = "coordinate" // reports for coordinate
	TaskQueue       = "tasks"      // requests to submit, plan and finalize
	PlanQueue       = "plan"       // ranges to plan: they take long, and must not delay other tasks
	DoctorQueue     = "doctor"     // messages by which a cloud's doctor checks the queues
)

// WorkQueue returns the queue that a pool's workers pull from.
func WorkQueue(pool string) string { return "work-" + pool }

// UrgentQueue returns the queue that a pool's workers ask first. It is for shards
// that must not wait behind a window full of work, such as one whose holder died.
func UrgentQueue(pool string) string { return "urgent-" + pool }

// causeKey is the context key of the event that is being handled.
type causeKey struct{}

// WithCause returns a context in which every sent event counts as caused by the
// given one. Functions handle each event in such a context. After a chain of
// events.MaxHops events, Send fails with Invalid, so that a cycle of functions ends
// (I8, see shared/README.md). Workers, timers and users start a new chain.
func WithCause(ctx context.Context, by events.Envelope) context.Context {
	return context.WithValue(ctx, causeKey{}, by)
}

// nextMeta returns the attributes of an event that is sent in the context.
func nextMeta(ctx context.Context) (events.Meta, error) {
	if by, ok := ctx.Value(causeKey{}).(events.Envelope); ok {
		return by.Next()
	}
	return events.Meta{}, nil
}

// Send puts the payloads into a queue as events. They belong to the trace of the
// context and are caused by its event (see WithCause). An invalid payload fails the
// whole call, and nothing is sent.
func (p Ports) Send(ctx context.Context, to string, payloads ...events.Payload) error {
	if len(payloads) == 0 {
		return nil
	}
	meta, err := nextMeta(ctx)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "send %d events to %s", len(payloads), to)
	}
	meta.Source, meta.Time, meta.Traceparent = "rollout/"+p.Source, p.Clock.Now(), observe.Traceparent(ctx)
	bodies := make([][]byte, len(payloads))
	for i, pl := range payloads {
		b, err := events.Encode(pl, meta)
		if err != nil {
			return fault.WithKind(fault.Invalid, err, "encode event for queue %s", to)
		}
		bodies[i] = b
	}
	return fault.Wrap(p.Queues.Send(ctx, to, bodies, 0), "send %d events to %s", len(bodies), to)
}

// DeadLetter moves a message that cannot be processed to the dead letters of its
// queue, and acknowledges it. reason goes into the log.
func (p Ports) DeadLetter(ctx context.Context, q string, m queue.Message, reason error) error {
	p.Log.WarnContext(ctx, "dead letter", observe.KeyQueue, q, observe.KeyMessage, m.ID, observe.KeyError, reason)
	if err := p.Queues.Send(ctx, queue.DeadLetterQueue(q), [][]byte{m.Body}, 0); err != nil {
		return fault.Wrap(err, "move message %s of %s to the dead letters", m.ID, q)
	}
	return p.Queues.Ack(ctx, q, []string{m.Receipt})
}
