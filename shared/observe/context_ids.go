package observe

import (
	"context"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"
)

// idsKey is the context key of the ids.
type idsKey struct{}

// WithIDs returns a context that adds the ids to its log lines, in addition to the ids
// that ctx already has.
func WithIDs(ctx context.Context, ids ...slog.Attr) context.Context {
	old, _ := ctx.Value(idsKey{}).([]slog.Attr)
	return context.WithValue(ctx, idsKey{}, slices.Concat(old, ids))
}

// AddContextIDs returns a handler that adds the ids of a line's context: those of
// WithIDs, and those of the current span. If the line or its logger has the same key,
// their value is kept and the key is written once.
func AddContextIDs(h slog.Handler) slog.Handler { return contextIDs{next: h} }

type contextIDs struct {
	next  slog.Handler
	bound []string // keys of the logger's own attributes
	group bool     // the logger has a group, in which ids would be nested
}

func (i contextIDs) Enabled(ctx context.Context, l slog.Level) bool { return i.next.Enabled(ctx, l) }

func (i contextIDs) Handle(ctx context.Context, rec slog.Record) error {
	if i.group {
		return i.next.Handle(ctx, rec)
	}
	out := slog.NewRecord(rec.Time, rec.Level, rec.Message, rec.PC)
	seen := slices.Clone(i.bound)
	add := func(a slog.Attr) bool {
		if !slices.Contains(seen, a.Key) {
			seen = append(seen, a.Key)
			out.AddAttrs(a)
		}
		return true
	}
	rec.Attrs(add)
	ids, _ := ctx.Value(idsKey{}).([]slog.Attr)
	for _, a := range slices.Backward(ids) { // the innermost takes precedence
		add(a)
	}
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		add(slog.String(KeyTrace, s.TraceID().String()))
		add(slog.String(KeySpan, s.SpanID().String()))
	}
	return i.next.Handle(ctx, out)
}

func (i contextIDs) WithAttrs(as []slog.Attr) slog.Handler {
	i.next = i.next.WithAttrs(as)
	if !i.group {
		i.bound = slices.Clone(i.bound)
		for _, a := range as {
			i.bound = append(i.bound, a.Key)
		}
	}
	return i
}

func (i contextIDs) WithGroup(name string) slog.Handler {
	i.next = i.next.WithGroup(name)
	i.group = i.group || name != ""
	return i
}
