package observe

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"time"

	"github.com/oklog/ulid/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
)

// Tracer creates the spans of runs. A run is one trace. The ids of the trace and of its
// root span are derived from the run's id, so that all processes agree on them. The parent
// of a span travels only in the envelope of the event that caused it.
//
//	run ─┬─ submit ── plan ── plan range
//	     ├─ coordinate step ─┬─ shard ── claim, load, execute, put, commit
//	     └─ finalize         └─ …
//
// A nil Tracer creates no spans and costs nothing. A Tracer is safe for concurrent use.
type Tracer struct{ otel trace.Tracer }

// NewTracer returns a tracer on an OpenTelemetry tracer. The id generator of its provider
// must take the ids of root spans from RootFromContext.
func NewTracer(t trace.Tracer) *Tracer { return &Tracer{t} }

// RootOf returns the root span of a run. The id of the trace is the 128 bits of the run's
// id, the id of the span is a hash of them. The result is invalid if run is not a valid id.
func RootOf(run identity.RunID) trace.SpanContext {
	id, err := ulid.ParseStrict(string(run))
	if err != nil {
		return trace.SpanContext{}
	}
	hash := sha256.Sum256(id[:])
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(id), SpanID: trace.SpanID(hash[:8]), TraceFlags: trace.FlagsSampled, Remote: true,
	})
}

// rootKey is the context key of the root span that is being created.
type rootKey struct{}

// RootFromContext returns the ids that the root span being created must have. It returns
// false for all other spans.
func RootFromContext(ctx context.Context) (trace.SpanContext, bool) {
	s, ok := ctx.Value(rootKey{}).(trace.SpanContext)
	return s, ok
}

// RecordRun creates the root span of a run that has ended.
func (t *Tracer) RecordRun(ctx context.Context, run identity.RunID, start, end time.Time, ids ...slog.Attr) {
	root := RootOf(run)
	if t == nil || !root.IsValid() {
		return
	}
	ctx = context.WithValue(ctx, rootKey{}, root)
	_, s := t.otel.Start(ctx, "run", trace.WithNewRoot(), trace.WithTimestamp(start),
		trace.WithAttributes(attributes(run, ids)...))
	s.End(trace.WithTimestamp(end))
}

// Start starts a span of a run at the time at, or now if at is zero. Its parent is the
// span of the context if that belongs to the same run, else the run's root span.
func (t *Tracer) Start(ctx context.Context, at time.Time, name string, run identity.RunID, ids ...slog.Attr) (
	context.Context, Span,
) {
	if t == nil {
		return ctx, Span{}
	}
	if root := RootOf(run); root.IsValid() && trace.SpanContextFromContext(ctx).TraceID() != root.TraceID() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, root)
	}
	return t.start(ctx, at, name, attributes(run, ids))
}

// StartChild starts a child of the context's span. It does nothing if the context has no
// span.
func (t *Tracer) StartChild(ctx context.Context, at time.Time, name string) (context.Context, Span) {
	if t == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, Span{}
	}
	return t.start(ctx, at, name, nil)
}

func (t *Tracer) start(ctx context.Context, at time.Time, name string, as []attribute.KeyValue) (
	context.Context, Span,
) {
	o := []trace.SpanStartOption{trace.WithAttributes(as...)}
	if !at.IsZero() {
		o = append(o, trace.WithTimestamp(at))
	}
	ctx, s := t.otel.Start(ctx, name, o...)
	return ctx, Span{s}
}

// Span is a span of a run. The methods of the zero Span do nothing.
type Span struct{ otel trace.Span }

// End ends the span. An error gives the span the status of a failure with the error's
// kind. The error's text, which may contain data of users, goes only to logs.
func (s Span) End(err error) {
	if s.otel == nil {
		return
	}
	if err != nil {
		s.otel.SetStatus(codes.Error, fault.KindOf(err).String())
	}
	s.otel.End()
}

// Set adds attributes to the span.
func (s Span) Set(as ...slog.Attr) {
	if s.otel != nil {
		s.otel.SetAttributes(attributes("", as)...)
	}
}

// Traceparent returns the context's span as a W3C traceparent header, "" without a span.
func Traceparent(ctx context.Context) string {
	s := trace.SpanContextFromContext(ctx)
	if !s.IsValid() {
		return ""
	}
	return "00-" + s.TraceID().String() + "-" + s.SpanID().String() + "-" + s.TraceFlags().String()
}

// IsRecording reports whether this process records the context's span.
func IsRecording(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// ContextWithTraceparent returns a context with the span of a W3C traceparent header. An
// invalid header leaves the context unchanged.
func ContextWithTraceparent(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}

// attributes converts the run's id, if any, and attributes for OpenTelemetry.
func attributes(run identity.RunID, as []slog.Attr) []attribute.KeyValue {
	out := make([]attribute.KeyValue, 0, len(as)+1)
	if run != "" {
		out = append(out, attribute.String(KeyRun, string(run)))
	}
	for _, a := range as {
		switch v := a.Value.Resolve(); v.Kind() {
		case slog.KindInt64:
			out = append(out, attribute.Int64(a.Key, v.Int64()))
		case slog.KindUint64:
			out = append(out, attribute.Int64(a.Key, int64(v.Uint64())))
		default:
			out = append(out, attribute.String(a.Key, v.String()))
		}
	}
	return out
}
