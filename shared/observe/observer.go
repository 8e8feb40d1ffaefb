package observe

import (
	"context"
	"log/slog"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/run"
)

// Observer is who is told of what happens, besides logs. The zero value tells
// nobody, which costs nothing.
type Observer struct {
	Events   *Emitter  // the event stream; nil is none
	Meter    Meter     // nil is none
	Liveness *Liveness // nil is none
	Tracer   *Tracer   // nil makes no spans
}

// Meter counts. Its methods are called from many goroutines and must not
// block.
type Meter interface {
	// Count hears of every event but Sample.
	Count(Event)
	// RecordRequest hears how long every request to an engine took, and how it ended.
	RecordRequest(took time.Duration, err error)
	// RecordTokens hears what every item's row took, in tokens, and of those that led to
	// none.
	RecordTokens(prompt, completion, wasted int64)
	// RecordScan hears, again and again, of all open runs and of all workers that
	// have a heartbeat.
	RecordScan(Scan)
	// AddServerSource names who tells how the inference servers of a worker stand, when
	// somebody wants to know.
	AddServerSource(ask func() []Server)
}

// Server is how an inference server stands.
type Server struct {
	Name     string
	Up       bool // it gets requests
	InFlight int
	Limit    int // requests at once; 0 if it has none of its own
}

// Scan is what one look at an installation's documents found.
type Scan struct {
	Runs       []run.State
	Heartbeats []health.Heartbeat
	IsDead     func(health.Heartbeat) bool // tells which of them are dead
}

// Record passes an event on to the log and to everybody who watches.
func (w Observer) Record(ctx context.Context, log *slog.Logger, e Event) {
	if log.Enabled(ctx, e.Level()) {
		log.LogAttrs(ctx, e.Level(), e.EventName(), e.Attrs()...)
	}
	w.Events.Emit(ctx, e)
	w.Liveness.record(e)
	if w.Meter != nil {
		w.Meter.Count(e)
	}
}
