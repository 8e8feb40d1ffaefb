package observe

import (
	"context"
	"io"
	"log/slog"
	"sync"

	"rollout/shared/clock"
	"rollout/shared/fault"
)

// Emitter writes a run's observability events as NDJSON: one line an event,
// flushed before Emit returns, so that a reader who follows the file is never
// behind a crash. The names are those of package events.
//
//	{"time":"2026-03-01T12:00:00.5Z","event":"run_start","run":"01J…"}
//
// A nil Emitter does nothing. All methods may be called concurrently.
type Emitter struct {
	clock clock.Clock

	mu    sync.Mutex
	lines slog.Handler
	flush func() error // nil if w has nothing to flush
	err   error        // the first failure; later events are dropped
}

// NewEmitter returns an emitter to w, each event in one Write. If w has a
// Flush method, it is called after every line.
func NewEmitter(w io.Writer, c clock.Clock) *Emitter {
	e := &Emitter{clock: c}
	if f, ok := w.(interface{ Flush() error }); ok {
		e.flush = f.Flush
	}
	e.lines = Redact(slog.NewJSONHandler(w, &slog.HandlerOptions{ReplaceAttr: eventShape}))
	return e
}

// Emit writes one event with its attributes.
func (e *Emitter) Emit(ctx context.Context, name string, attrs ...slog.Attr) {
	if e == nil {
		return
	}
	rec := slog.NewRecord(e.clock.Now().UTC(), slog.LevelInfo, name, 0)
	rec.AddAttrs(attrs...)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err != nil {
		return
	}
	e.err = fault.As(fault.Unavailable, e.write(ctx, rec), "write event %s", name)
}

func (e *Emitter) write(ctx context.Context, rec slog.Record) error {
	if err := e.lines.Handle(ctx, rec); err != nil {
		return err
	}
	if e.flush == nil {
		return nil
	}
	return e.flush()
}

// Err returns the first failure to write, or nil.
func (e *Emitter) Err() error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// eventShape names slog's own attributes as events do.
func eventShape(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.LevelKey:
		return slog.Attr{}
	case slog.MessageKey:
		a.Key = "event"
	}
	return a
}
