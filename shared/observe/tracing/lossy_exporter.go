package tracing

import (
	"context"
	"log/slog"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"

	"rollout/shared/observe"
)

// again is how long a way out that fails is not told again.
const again = time.Minute

// lossyExporter is a way out that tells the log of failures, and nobody else. Its
// caller exports one batch after the other.
type lossyExporter struct {
	sdk.SpanExporter
	log  *slog.Logger
	told time.Time
	lost int // spans since then
}

// ExportSpans takes spans out, or loses them.
func (q *lossyExporter) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := q.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	q.lost += len(spans)
	if now := time.Now(); now.Sub(q.told) >= again {
		q.log.WarnContext(ctx, "spans are lost", "lost", q.lost, observe.KeyError, err)
		q.told, q.lost = now, 0
	}
	return nil
}
