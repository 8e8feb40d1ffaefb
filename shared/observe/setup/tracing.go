package setup

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

// Limits of the queue and of the exporters.
const (
	maxQueue     = 8192        // spans in the queue
	maxBatch     = 512         // spans of one export
	batchTime    = time.Second // how long a span waits for others of its batch
	exportTime   = 10 * time.Second
	shutdownTime = 3 * time.Second // for the remaining spans
)

// traceOptions select the exporters of spans. The zero value selects none.
type traceOptions struct {
	file io.Writer // gets one line of OTLP JSON per span
	// endpoint is the URL to which spans are sent as protobuf over HTTP. OpenTelemetry's
	// variables configure headers, certificates and so on.
	endpoint string
	service  string // the process that creates the spans. Example: "rollout up"
	log      *slog.Logger
}

// openTracer returns a tracer and the function that ends it, which exports the remaining
// spans for at most shutdownTime. The tracer is nil without an exporter.
func openTracer(ctx context.Context, o traceOptions) (*observe.Tracer, func() error, error) {
	var exporters []sdk.SpanExporter
	if o.file != nil {
		exporters = append(exporters, &fileExporter{w: o.file})
	}
	if o.endpoint != "" {
		e, err := newCollectorExporter(ctx, o.endpoint)
		if err != nil {
			return nil, nil, fault.WithKind(fault.Invalid, err, "trace collector")
		}
		exporters = append(exporters, e)
	}
	if len(exporters) == 0 {
		return nil, func() error { return nil }, nil
	}
	process, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "rollout"),
		attribute.String("process.command", o.service), attribute.Int("process.pid", os.Getpid())), resource.WithFromEnv())
	if err != nil { // the other attributes are still used
		o.log.WarnContext(ctx, "cannot parse OTEL_RESOURCE_ATTRIBUTES", observe.KeyError, err)
	}
	options := []sdk.TracerProviderOption{sdk.WithIDGenerator(idGenerator{}), sdk.WithResource(process)}
	for _, e := range exporters {
		options = append(options, sdk.WithBatcher(&lossyExporter{SpanExporter: e, log: o.log},
			sdk.WithMaxQueueSize(maxQueue), sdk.WithMaxExportBatchSize(maxBatch),
			sdk.WithBatchTimeout(batchTime), sdk.WithExportTimeout(exportTime)))
	}
	provider := sdk.NewTracerProvider(options...)
	end := func() error {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
		defer cancel()
		if err := provider.Shutdown(last); err != nil {
			o.log.WarnContext(ctx, "the last spans are lost", observe.KeyError, err)
		}
		return nil
	}
	return observe.NewTracer(provider.Tracer("rollout")), end, nil
}

func newCollectorExporter(ctx context.Context, endpoint string) (sdk.SpanExporter, error) {
	retries := otlptracehttp.RetryConfig{
		Enabled: true, InitialInterval: 200 * time.Millisecond, MaxInterval: 2 * time.Second, MaxElapsedTime: exportTime,
	}
	return otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(endpoint),
		otlptracehttp.WithTimeout(exportTime), otlptracehttp.WithRetry(retries))
}

// warnEvery is the shortest time between two warnings of a failing exporter.
const warnEvery = time.Minute

// lossyExporter is an exporter that logs its failures instead of returning them. Its
// caller exports one batch at a time.
type lossyExporter struct {
	sdk.SpanExporter
	log    *slog.Logger
	warned time.Time
	lost   int // spans since the last warning
}

// ExportSpans exports spans, or loses them.
func (q *lossyExporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := q.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	q.lost += len(spans)
	if now := time.Now(); now.Sub(q.warned) >= warnEvery {
		q.log.WarnContext(ctx, "spans are lost", "lost", q.lost, observe.KeyError, err)
		q.warned, q.lost = now, 0
	}
	return nil
}

// idGenerator creates the ids of spans: the root span of a run has given ids, all others
// have random ones.
type idGenerator struct{}

func (idGenerator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if root, ok := observe.RootFromContext(ctx); ok {
		return root.TraceID(), root.SpanID()
	}
	var id trace.TraceID
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64()|1)
	return id, newSpanID()
}

func (idGenerator) NewSpanID(context.Context, trace.TraceID) trace.SpanID { return newSpanID() }

func newSpanID() (id trace.SpanID) {
	binary.LittleEndian.PutUint64(id[:], rand.Uint64()|1) // 0 is not a valid id
	return id
}
