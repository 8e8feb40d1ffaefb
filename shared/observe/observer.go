package observe

import (
	"context"
	"log/slog"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/run"
)

// Event is an event for logs, the event stream and metrics. All implementations are in
// this package. Each has fixed fields in a fixed order. Events only inform: no part of
// rollout acts on them.
type Event interface {
	// EventName returns the name of the event in package events. Example:
	// "shard_claimed".
	EventName() string
	// Level returns the level of the event's log line.
	Level() slog.Level
	// Attrs returns the fields of the event.
	Attrs() []slog.Attr
}

// unlogged is the level of events that are too frequent for a log.
const unlogged = slog.LevelDebug - 4

// Observer are the receivers of a process's events, in addition to its log. Each field may
// be nil. The zero value has no receivers and costs nothing.
type Observer struct {
	Events   *Emitter // the event stream
	Meter    Meter
	Liveness *Liveness
	Tracer   *Tracer // creates spans
}

// Meter collects metrics. Its methods are called concurrently and must not block.
type Meter interface {
	// Count counts an event. It is not called for ItemDone.
	Count(Event)
	// RecordRequest records the duration and the result of a request to an engine.
	RecordRequest(took time.Duration, err error)
	// RecordTokens records the tokens of an item's row, and wasted tokens, which did not
	// lead to a row.
	RecordTokens(prompt, completion, wasted int64)
	// RecordScan records the periodic scan of all open runs and all heartbeats.
	RecordScan(Scan)
	// RecordPluginCall records the duration and the result of a call of a plugin.
	RecordPluginCall(plugin string, took time.Duration, err error)
	// AddServerSource adds a function that returns the status of the inference servers of
	// a worker. The Meter calls it whenever it reports its metrics.
	AddServerSource(status func() []Server)
}

// Server is the status of an inference server.
type Server struct {
	Name     string
	Up       bool // the server gets requests
	InFlight int
	Limit    int // the most concurrent requests; 0 if the server has no limit of its own
}

// Scan is the result of one scan of an installation's documents.
type Scan struct {
	Runs       []run.State // open runs
	Heartbeats []health.Heartbeat
	IsDead     func(health.Heartbeat) bool // reports whether the worker is dead
}

// Record passes an event to the log and to all receivers.
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
