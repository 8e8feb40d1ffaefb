// Package host connects the pure core to the outside: it holds what every function
// and worker needs in order to load, step, save and perform.
//
// That is the Ports of a process; Load, Save and Update, which change a document by
// compare-and-swap; and Send, which puts events into the named queues. The package
// names no driver and decides nothing.
package host

import (
	"context"
	"log/slog"
	"time"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/observe"
	"rollout/shared/queue"
)

// Ports are a process's connections to its installation. The zero Watch observes
// nothing.
type Ports struct {
	Blobs  blob.Store
	Docs   document.Store
	Queues queue.Queues
	Clock  clock.Clock
	Log    *slog.Logger
	Watch  observe.Observer // receives what happens: events, metrics and spans
	Source string           // the sender in the envelopes of events: "plan", "worker/01J…"
}

// WithSource returns the ports with another Source.
func (p Ports) WithSource(source string) Ports {
	p.Source = source
	return p
}

// Observe reports an event to the log and to Watch.
func (p Ports) Observe(ctx context.Context, e observe.Event) { p.Watch.Record(ctx, p.Log, e) }

// StartSpan starts a span of the work on a run, and returns a context whose log
// lines carry the run's id and the given ids. since is when the work began; the
// zero time means now.
func (p Ports) StartSpan(ctx context.Context, since time.Time, name string, run identity.RunID,
	ids ...slog.Attr) (context.Context, observe.Span) {
	ctx = observe.WithIDs(ctx, append(ids[:len(ids):len(ids)], slog.String(observe.KeyRun, string(run)))...)
	return p.Watch.Tracer.Start(ctx, since, name, run, ids...)
}

// StartChildSpan starts a span within the span of the context.
func (p Ports) StartChildSpan(ctx context.Context, name string) (context.Context, observe.Span) {
	return p.Watch.Tracer.StartChild(ctx, time.Time{}, name)
}

// Timings returns a deployment's heartbeat settings in the form that the core uses.
func Timings(h config.Health) health.Timings {
	return health.Timings{Interval: h.Interval.Std(), SelfFence: h.SelfFence.Std(),
		FailureTimeout: h.FailureTimeout.Std(), SkewBudget: h.SkewBudget.Std()}
}
