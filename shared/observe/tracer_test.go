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

// Every process must derive the same ids, today's and tomorrow's.
func TestTheTraceOfARunIsItsID(t *testing.T) {
	t.Parallel()
	root := observe.RootOf(run)
	if got := root.TraceID().String() + " " + root.SpanID().String(); got != "019345fb9345e0281ea7cb3e0734336e ac844491abd8ba6d" || !root.IsSampled() {
		t.Errorf("got %s", got)
	}
	for _, bad := range []identity.RunID{"", "01JD", "01JD2ZQ4T5W0M1X9YB7R3K8CV!", "91JD2ZQ4T5W0M1X9YB7R3K8CVE"} {
		if observe.RootOf(bad).IsValid() {
			t.Errorf("%q is a run's id", bad)
		}
	}
}

// recorded is a tracer whose spans are kept.
func recorded() (*observe.Tracer, *tracetest.SpanRecorder) {
	r := tracetest.NewSpanRecorder()
	return observe.NewTracer(sdk.NewTracerProvider(sdk.WithSpanProcessor(r)).Tracer("test")), r
}

func TestASpanBelongsToItsRun(t *testing.T) {
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
		{"of the event that led to it", header, run, trace.SpanContextFromContext(sender)},
		{"without one, the run's first", "", run, observe.RootOf(run)},
		{"another run's is none", header, other, observe.RootOf(other)},
		{"nonsense is none", "00-" + string(make([]byte, 52)), run, observe.RootOf(run)},
		{"a zero one is none", "00-00000000000000000000000000000000-0000000000000000-01", run, observe.RootOf(run)},
	} {
		_, s := tracer.Start(observe.ContextWithTraceparent(t.Context(), c.traceparent), time.Time{}, "shard", c.run, slog.Int("shard", 7), slog.Uint64("attempt", 1))
		s.End(nil)
		got := spans.Ended()[len(spans.Ended())-1]
		if got.Parent().SpanID() != c.parent.SpanID() || got.SpanContext().TraceID() != c.parent.TraceID() || len(got.Attributes()) != 3 {
			t.Errorf("%s: parent %v of trace %v, attributes %v", c.name, got.Parent().SpanID(), got.SpanContext().TraceID(), got.Attributes())
		}
	}
}

// An error's text may repeat what a server or a line said.
func TestASpanTellsTheKindOfItsErrorAlone(t *testing.T) {
	t.Parallel()
	tracer, spans := recorded()
	ctx, s := tracer.Start(t.Context(), time.Time{}, "shard", run)
	_, step := tracer.StartChild(ctx, time.Time{}, "put")
	step.End(fault.WithKind(fault.Exhausted, errors.New("the text"), "put"))
	s.End(errors.New("the text"))
	if got := spans.Ended()[0].Status().Description + spans.Ended()[1].Status().Description; got != "exhausted"+"internal" {
		t.Errorf("it tells %q", got)
	}
}

func TestWithoutATracerNothingIsMade(t *testing.T) {
	var tracer *observe.Tracer
	ctx := t.Context()
	if n := testing.AllocsPerRun(100, func() {
		ctx, s := tracer.Start(ctx, time.Time{}, "shard", run)
		_, step := tracer.StartChild(ctx, time.Time{}, "put")
		step.End(nil)
		s.End(nil)
		tracer.RecordRun(ctx, run, time.Time{}, time.Time{})
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
	if observe.Traceparent(ctx) != "" || observe.IsRecording(ctx) {
		t.Error("there is a span")
	}
	passed := observe.ContextWithTraceparent(ctx, "00-019345fb9345e0281ea7cb3e0734336e-ac844491abd8ba6d-01")
	if observe.Traceparent(passed) == "" || observe.IsRecording(passed) {
		t.Error("others' spans are passed on, and are none of ours")
	}
}
