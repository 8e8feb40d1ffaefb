// Package host runs the pure engine over the ports: load, step, save, perform.
//
// It holds what every function and worker needs to do so: the ports
// themselves, the names of the queues, sending events, and changing a document
// by compare-and-swap. It names no driver and decides nothing.
package host

import (
	"context"
	"log/slog"
	"time"

	"rollout/events"
	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/observe"
	"rollout/shared/queue"
)

// Ports are a process's connections to the world outside.
type Ports struct {
	Blobs  blob.Store
	Docs   document.Store
	Queues queue.Queues
	Clock  clock.Clock
	Log    *slog.Logger
	Watch  observe.Observer // who is told of what happens
	Source string           // who sends: "plan", "worker/01J…"; goes into envelopes
}

// WithSource returns the ports with another Source.
func (p Ports) WithSource(source string) Ports {
	p.Source = source
	return p
}

// Observe tells the log, and whoever watches, what happened.
func (p Ports) Observe(ctx context.Context, e observe.Event) { p.Watch.Record(ctx, p.Log, e) }

// StartSpan begins a part of the work on a run, since when if that is not now: a
// span of it, and a context whose log lines carry the run's id and the others.
func (p Ports) StartSpan(ctx context.Context, since time.Time, name string, run identity.RunID, ids ...slog.Attr) (context.Context, observe.Span) {
	ctx = observe.WithIDs(ctx, append(ids[:len(ids):len(ids)], slog.String(observe.KeyRun, string(run)))...)
	return p.Watch.Tracer.Start(ctx, since, name, run, ids...)
}

// StartChildSpan begins a part of what the context's span is of.
func (p Ports) StartChildSpan(ctx context.Context, name string) (context.Context, observe.Span) {
	return p.Watch.Tracer.StartChild(ctx, time.Time{}, name)
}

// Names of the queues.
const (
	CoordinateQueue = "coordinate" // what happened, for coordinate
	TaskQueue       = "tasks"      // what to do, for submit, plan and finalize
	PlanQueue       = "plan"       // ranges to cut: long, so that they hold nothing else up
	DoctorQueue     = "doctor"     // nothing of the product's: what a cloud's doctor sends itself
)

// WorkQueue is the queue that a pool's workers pull from.
func WorkQueue(pool string) string { return "work-" + pool }

// UrgentQueue is the queue that a pool's workers look into first: what others
// wait for, such as a shard whose holder died, must not wait behind a window
// full of work.
func UrgentQueue(pool string) string { return "urgent-" + pool }

// Send puts the payloads into a queue as events, of the context's trace, and
// caused by what the context is.
func (p Ports) Send(ctx context.Context, to string, payloads ...events.Payload) error {
	return p.SendAfter(ctx, to, 0, payloads...)
}

// SendAfter is Send with a delay before they can be received.
func (p Ports) SendAfter(ctx context.Context, to string, delay time.Duration, payloads ...events.Payload) error {
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
	return fault.Wrap(p.Queues.Send(ctx, to, bodies, delay), "send %d events to %s", len(bodies), to)
}

// DeadLetter puts a message that can't be acted on among the queue's dead letters
// and acknowledges it.
func (p Ports) DeadLetter(ctx context.Context, q string, m queue.Message, why error) error {
	p.Log.WarnContext(ctx, "dead letter", observe.KeyQueue, q, observe.KeyMessage, m.ID, observe.KeyError, why)
	if err := p.Queues.Send(ctx, queue.DeadLetterQueue(q), [][]byte{m.Body}, 0); err != nil {
		return fault.Wrap(err, "bury message %s of %s", m.ID, q)
	}
	return p.Queues.Ack(ctx, q, []string{m.Receipt})
}
