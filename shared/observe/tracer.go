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

// Tracer makes the spans of runs. A run is one trace: its id and that of its
// first span are derived from the run's, so that every process agrees on them
// without being told. Which span led to which travels in the envelopes of
// events, and nowhere else.
//
//	run ─┬─ submit ── plan ── plan range
//	     ├─ coordinate step ─┬─ shard ── claim, load, execute, put, commit
//	     └─ finalize         └─ …
//
// A nil Tracer makes none, which costs nothing.
type Tracer struct{ otel trace.Tracer }

// NewTracer returns a tracer over OpenTelemetry's. Its provider must take the
// ids of first spans from RootIn.
func NewTracer(t trace.Tracer) *Tracer { return &Tracer{t} }

// RootOf names the first span of a run: the trace's id is the 128 bits of the
// run's, the span's is a hash of them.
func RootOf(run identity.RunID) trace.SpanContext {
	id, err := ulid.ParseStrict(string(run))
	if err != nil {
		return trace.SpanContext{}
	}
	hash := sha256.Sum256(id[:])
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID(id), SpanID: trace.SpanID(hash[:8]), TraceFlags: trace.FlagsSampled, Remote: true})
}

// rootKey is where a context names the first span that is being made.
type rootKey struct{}

// RootFromContext returns the ids that the first span being made must have.
func RootFromContext(ctx context.Context) (trace.SpanContext, bool) {
	s, ok := ctx.Value(rootKey{}).(trace.SpanContext)
	return s, ok
}

// RecordRun makes the first span of a run that has ended.
func (t *Tracer) RecordRun(ctx context.Context, run identity.RunID, start, end time.Time, ids ...slog.Attr) {
	root := RootOf(run)
	if t == nil || !root.IsValid() {
		return
	}
	_, s := t.otel.Start(context.WithValue(ctx, rootKey{}, root), "run", trace.WithNewRoot(), trace.WithTimestamp(start), trace.WithAttributes(attributes(run, ids)...))
	s.End(trace.WithTimestamp(end))
}

// Start begins a span about a run, now or (if at is not zero) in the past. Its
// parent is the context's span if that is of the same run, else the run's first.
func (t *Tracer) Start(ctx context.Context, at time.Time, name string, run identity.RunID, ids ...slog.Attr) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	if root := RootOf(run); root.IsValid() && trace.SpanContextFromContext(ctx).TraceID() != root.TraceID() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, root)
	}
	return t.start(ctx, at, name, attributes(run, ids))
}

// StartChild begins a span within the context's; none if there is none.
func (t *Tracer) StartChild(ctx context.Context, at time.Time, name string) (context.Context, Span) {
	if t == nil || !trace.SpanContextFromContext(ctx).IsValid() {
		return ctx, Span{}
	}
	return t.start(ctx, at, name, nil)
}

func (t *Tracer) start(ctx context.Context, at time.Time, name string, as []attribute.KeyValue) (context.Context, Span) {
	o := []trace.SpanStartOption{trace.WithAttributes(as...)}
	if !at.IsZero() {
		o = append(o, trace.WithTimestamp(at))
	}
	ctx, s := t.otel.Start(ctx, name, o...)
	return ctx, Span{s}
}

// Span is a part of a run's work. The zero Span is none.
type Span struct{ otel trace.Span }

// End ends the span, as a failed one if there was an error. Its text is for
// logs: of errors, spans tell the kind alone.
func (s Span) End(err error) {
	if s.otel == nil {
		return
	}
	if err != nil {
		s.otel.SetStatus(codes.Error, fault.KindOf(err).String())
	}
	s.otel.End()
}

// Set adds attributes.
func (s Span) Set(as ...slog.Attr) {
	if s.otel != nil {
		s.otel.SetAttributes(attributes("", as)...)
	}
}

// Traceparent names the context's span as W3C trace context; "" if there is
// none.
func Traceparent(ctx context.Context) string {
	s := trace.SpanContextFromContext(ctx)
	if !s.IsValid() {
		return ""
	}
	return "00-" + s.TraceID().String() + "-" + s.SpanID().String() + "-" + s.TraceFlags().String()
}

// IsRecording reports whether the context's span is made here.
func IsRecording(ctx context.Context) bool { return trace.SpanFromContext(ctx).IsRecording() }

// ContextWithTraceparent returns a context whose span is the one that the trace context
// names. What is none changes nothing.
func ContextWithTraceparent(ctx context.Context, traceparent string) context.Context {
	if traceparent == "" {
		return ctx
	}
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{"traceparent": traceparent})
}

// attributes are OpenTelemetry's of a run and what else is named.
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
