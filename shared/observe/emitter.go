package observe

import (
	"context"
	"io"
	"log/slog"
	"sync"

	"rollout/shared/clock"
	"rollout/shared/fault"
)

// Emitter writes events as NDJSON, one line per event. Emit writes and flushes the line
// before it returns, so that a crash loses no emitted event. The names of events are
// those of package events.
//
//	{"time":"2026-03-01T12:00:00.5Z","event":"run_planned","run":"01J…","shards":2,"items":300}
//
// Events that cannot be written are lost. The log gets a warning when that begins and
// when it ends. A nil Emitter does nothing. An Emitter is safe for concurrent use.
type Emitter struct {
	clock clock.Clock
	log   *slog.Logger

	mu    sync.Mutex
	lines slog.Handler
	lost  int   // events since the last successful write
	err   error // the first failure
}

// NewEmitter returns an emitter that writes each event to w in one Write. If w has a
// Flush method, the emitter calls it after every line. Failures go to log.
func NewEmitter(w io.Writer, c clock.Clock, log *slog.Logger) *Emitter {
	e := &Emitter{clock: c, log: log}
	e.lines = Redact(slog.NewJSONHandler(&lines{w: w}, &slog.HandlerOptions{ReplaceAttr: eventShape}))
	return e
}

// Emit writes one event with the current time in UTC.
func (e *Emitter) Emit(ctx context.Context, ev Event) {
	if e == nil {
		return
	}
	rec := slog.NewRecord(e.clock.Now().UTC(), slog.LevelInfo, ev.EventName(), 0)
	rec.AddAttrs(ev.Attrs()...)
	e.mu.Lock()
	defer e.mu.Unlock()
	err := e.lines.Handle(ctx, rec)
	switch {
	case err != nil:
		err = fault.WithKind(fault.Unavailable, err, "write event %s", ev.EventName())
		if e.lost++; e.lost == 1 {
			e.log.WarnContext(ctx, "cannot write events", KeyError, err)
		}
		if e.err == nil {
			e.err = err
		}
	case e.lost > 0:
		e.log.WarnContext(ctx, "events are written again", "lost", e.lost)
		e.lost = 0
	}
}

// Err returns the first failed write, or nil.
func (e *Emitter) Err() error {
	if e == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.err
}

// lines writes complete lines. It ends the rest of a line that a failed write left
// before it writes the next.
type lines struct {
	w    io.Writer
	torn bool // the last line is incomplete
}

func (l *lines) Write(b []byte) (int, error) {
	if l.torn {
		if _, err := l.w.Write([]byte("\n")); err != nil {
			return 0, err
		}
		l.torn = false
	}
	n, err := l.w.Write(b)
	l.torn = err != nil && n > 0
	if f, ok := l.w.(interface{ Flush() error }); ok && err == nil {
		err = f.Flush()
	}
	return n, err
}

// eventShape removes slog's level and renames slog's message to "event".
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
