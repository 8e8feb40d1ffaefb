package observe

import (
	"context"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"
)

// idsKey is where a context carries ids.
type idsKey struct{}

// WithIDs returns a context whose log lines carry the ids, besides those that
// they carried before.
func WithIDs(ctx context.Context, ids ...slog.Attr) context.Context {
	old, _ := ctx.Value(idsKey{}).([]slog.Attr)
	return context.WithValue(ctx, idsKey{}, slices.Concat(old, ids))
}

// AddContextIDs returns a handler that adds the ids in a line's context: those put
// there by With, and those of its span. A key that the line or its logger has
// already is said once, as they say it.
func AddContextIDs(h slog.Handler) slog.Handler { return identifier{next: h} }

type identifier struct {
	next  slog.Handler
	bound []string // keys of the logger itself
	group bool     // within a group, keys mean something else
}

func (i identifier) Enabled(ctx context.Context, l slog.Level) bool { return i.next.Enabled(ctx, l) }

func (i identifier) Handle(ctx context.Context, rec slog.Record) error {
	if i.group {
		return i.next.Handle(ctx, rec)
	}
	out := slog.NewRecord(rec.Time, rec.Level, rec.Message, rec.PC)
	said := slices.Clone(i.bound)
	add := func(a slog.Attr) bool {
		if !slices.Contains(said, a.Key) {
			said = append(said, a.Key)
			out.AddAttrs(a)
		}
		return true
	}
	rec.Attrs(add)
	ids, _ := ctx.Value(idsKey{}).([]slog.Attr)
	for _, a := range slices.Backward(ids) { // the innermost knows best
		add(a)
	}
	if s := trace.SpanContextFromContext(ctx); s.IsValid() {
		add(slog.String(KeyTrace, s.TraceID().String()))
		add(slog.String(KeySpan, s.SpanID().String()))
	}
	return i.next.Handle(ctx, out)
}

func (i identifier) WithAttrs(as []slog.Attr) slog.Handler {
	i.next = i.next.WithAttrs(as)
	if !i.group {
		i.bound = slices.Clone(i.bound)
		for _, a := range as {
			i.bound = append(i.bound, a.Key)
		}
	}
	return i
}

func (i identifier) WithGroup(name string) slog.Handler {
	i.next = i.next.WithGroup(name)
	i.group = i.group || name != ""
	return i
}
