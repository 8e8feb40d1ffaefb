package observe_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/observe"
)

// Every process and every version must derive the same ids.
func TestRootOfDerivesIDsFromRun(t *testing.T) {
	t.Parallel()
	root := observe.RootOf(run)
	got := root.TraceID().String() + " " + root.SpanID().String()
	if got != "019345fb9345e0281ea7cb3e0734336e ac844491abd8ba6d" || !root.IsSampled() {
		t.Errorf("ids %s, sampled %v", got, root.IsSampled())
	}
	for _, bad := range []identity.RunID{"", "01JD", "01JD2ZQ4T5W0M1X9YB7R3K8CV!", "91JD2ZQ4T5W0M1X9YB7R3K8CVE"} {
		if observe.RootOf(bad).IsValid() {
			t.Errorf("RootOf(%q) is valid", bad)
		}
	}
}

// recorded returns a tracer and the recorder of its spans.
func recorded() (*observe.Tracer, *tracetest.SpanRecorder) {
	r := tracetest.NewSpanRecorder()
	return observe.NewTracer(sdk.NewTracerProvider(sdk.WithSpanProcessor(r)).Tracer("test")), r
}

func TestSpanHasParentOfSameRun(t *testing.T) {
	t.Parallel()
	const other = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVF")
	tracer, spans := recorded()
	sender, s := tracer.Start(t.Context(), time.Time{}, "coordinate step", run)
	header := observe.Traceparent(sender)
	s.End(nil)
	for _, c := range []struct {
		name, traceparent string
		run               identity.RunID
		parent            trace.SpanContext
	}{
		{"parent of the same run", header, run, trace.SpanContextFromContext(sender)},
		{"without parent", "", run, observe.RootOf(run)},
		{"parent of another run", header, other, observe.RootOf(other)},
		{"invalid parent", "00-" + string(make([]byte, 52)), run, observe.RootOf(run)},
		{"zero parent", "00-00000000000000000000000000000000-0000000000000000-01", run, observe.RootOf(run)},
	} {
		ctx := observe.ContextWithTraceparent(t.Context(), c.traceparent)
		_, s := tracer.Start(ctx, time.Time{}, "shard", c.run, slog.Int("shard", 7), slog.Uint64("attempt", 1))
		s.End(nil)
		got := spans.Ended()[len(spans.Ended())-1]
		parent, traceID := got.Parent().SpanID(), got.SpanContext().TraceID()
		if parent != c.parent.SpanID() || traceID != c.parent.TraceID() || len(got.Attributes()) != 3 {
			t.Errorf("%s: parent %v of trace %v, attributes %v", c.name, parent, traceID, got.Attributes())
		}
	}
}

// The text of an error may repeat data of a server or a user.
func TestSpanHasOnlyKindOfItsError(t *testing.T) {
	t.Parallel()
	tracer, spans := recorded()
	ctx, s := tracer.Start(t.Context(), time.Time{}, "shard", run)
	_, step := tracer.StartChild(ctx, time.Time{}, "put")
	step.End(fault.WithKind(fault.Exhausted, errors.New("the text"), "put"))
	s.End(errors.New("the text"))
	child, parent := spans.Ended()[0].Status().Description, spans.Ended()[1].Status().Description
	if child != "exhausted" || parent != "internal" {
		t.Errorf("descriptions %q and %q, want exhausted and internal", child, parent)
	}
}

func TestNilTracerCreatesNoSpans(t *testing.T) {
	var tracer *observe.Tracer
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		ctx, s := tracer.Start(ctx, time.Time{}, "shard", run)
		_, step := tracer.StartChild(ctx, time.Time{}, "put")
		step.End(nil)
		s.End(nil)
		tracer.RecordRun(ctx, run, time.Time{}, time.Time{})
	}); n > 0 {
		t.Errorf("%v allocations, want 0", n)
	}
	if observe.Traceparent(ctx) != "" || observe.IsRecording(ctx) {
		t.Error("the context has a span")
	}
	passed := observe.ContextWithTraceparent(ctx, "00-019345fb9345e0281ea7cb3e0734336e-ac844491abd8ba6d-01")
	if observe.Traceparent(passed) == "" || observe.IsRecording(passed) {
		t.Error("a received span must be passed on and not be recorded")
	}
}
