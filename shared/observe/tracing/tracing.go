// Package tracing takes the spans of runs out of the process: into a file, or
// to an OpenTelemetry collector.
//
// Spans wait in a bounded queue and are dropped when it is full: tracing never
// holds work up. A way out that fails is told to the log, once and then now and
// then, and costs spans, nothing else. OpenTelemetry's global state stays as it
// is.
package tracing

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"rollout/shared/fault"
	"rollout/shared/observe"
)

// Bounds of the queue and of the ways out.
const (
	maxQueue   = 8192        // spans
	maxBatch   = 512         // spans of one export
	gather     = time.Second // how long spans may wait for others
	exportTime = 10 * time.Second
	lastTime   = 3 * time.Second // for what is left at the end
)

// Options say where spans go; the zero value is nowhere.
type Options struct {
	File io.Writer // a line of OTLP's JSON a span; nil is none
	// Endpoint is the URL that a collector takes spans at, as protobuf over
	// HTTP; "" is none. Headers, certificates and the like are those of
	// OpenTelemetry's variables.
	Endpoint string
	Service  string // who makes the spans. Example: "rollout up"
	Log      *slog.Logger
}

// Open returns a tracer, nil if spans go nowhere, and what ends it: spans that
// are left are taken out, if that takes no longer than a few seconds.
func Open(ctx context.Context, o Options) (*observe.Tracer, func() error, error) {
	var ways []sdk.SpanExporter
	if o.File != nil {
		ways = append(ways, &fileExporter{w: o.File})
	}
	if o.Endpoint != "" {
		e, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(o.Endpoint), otlptracehttp.WithTimeout(exportTime),
			otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: 200 * time.Millisecond, MaxInterval: 2 * time.Second, MaxElapsedTime: exportTime}))
		if err != nil {
			return nil, nil, fault.WithKind(fault.Invalid, err, "trace collector")
		}
		ways = append(ways, e)
	}
	if len(ways) == 0 {
		return nil, func() error { return nil }, nil
	}
	who, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "rollout"),
		attribute.String("process.command", o.Service), attribute.Int("process.pid", os.Getpid())), resource.WithFromEnv())
	if err != nil { // a variable that can't be read: the rest stands
		o.Log.WarnContext(ctx, "OTEL_RESOURCE_ATTRIBUTES", observe.KeyError, err)
	}
	options := []sdk.TracerProviderOption{sdk.WithIDGenerator(idGenerator{}), sdk.WithResource(who)}
	for _, w := range ways {
		options = append(options, sdk.WithBatcher(&lossyExporter{SpanExporter: w, log: o.Log}, sdk.WithMaxQueueSize(maxQueue),
			sdk.WithMaxExportBatchSize(maxBatch), sdk.WithBatchTimeout(gather), sdk.WithExportTimeout(exportTime)))
	}
	provider := sdk.NewTracerProvider(options...)
	end := func() error {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastTime)
		defer cancel()
		if err := provider.Shutdown(last); err != nil {
			o.Log.WarnContext(ctx, "the last spans are lost", observe.KeyError, err)
		}
		return nil
	}
	return observe.NewTracer(provider.Tracer("rollout")), end, nil
}

// idGenerator makes ids: those of a run's first span are given, all others random.
type idGenerator struct{}

func (idGenerator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if root, ok := observe.RootFromContext(ctx); ok {
		return root.TraceID(), root.SpanID()
	}
	var id trace.TraceID
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64()|1)
	return id, span()
}

func (idGenerator) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return span() }

func span() (id trace.SpanID) {
	binary.LittleEndian.PutUint64(id[:], rand.Uint64()|1) // 0 is none
	return id
}
