package cli

import (
	"context"
	"log/slog"

	"rollout/events"
	"rollout/gpuworker/executors/infer"
	"rollout/shared/observe"
)

// emitItem writes one item's event.
func emitItem(ctx context.Context, e *observe.Emitter, it infer.Item) {
	name := events.ObserveSampleCompleted
	attrs := []slog.Attr{slog.String("run_id", string(it.Run)), slog.Uint64("item", it.Item), slog.String("id", it.ID)}
	if it.Class != "" {
		name = events.ObserveSampleFailed
		attrs = append(attrs, slog.String("class", string(it.Class)))
	}
	e.Emit(ctx, name, attrs...)
}
