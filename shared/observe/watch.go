package observe

import (
	"context"
	"log/slog"
)

// Watch is who is told of what happens, besides logs. The zero value tells
// nobody.
type Watch struct {
	Events *Emitter // the event stream; nil is none
}

// Tell passes an event on to the log and to everybody who watches.
func (w Watch) Tell(ctx context.Context, log *slog.Logger, e Event) {
	if log.Enabled(ctx, e.Level()) {
		log.LogAttrs(ctx, e.Level(), e.EventName(), e.Attrs()...)
	}
	w.Events.Emit(ctx, e)
}
