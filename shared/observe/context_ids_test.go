package observe_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/trace"

	"rollout/shared/observe"
)

// logged returns the line that f logs, without time, level and message.
func logged(t *testing.T, ctx context.Context, f func(context.Context, *slog.Logger)) map[string]any {
	t.Helper()
	var out bytes.Buffer
	f(ctx, observe.NewLogger(&out, observe.JSON, slog.LevelDebug))
	line := map[string]any{}
	if err := json.Unmarshal(out.Bytes(), &line); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	if n := bytes.Count(out.Bytes(), []byte(`"run":`)); n > 1 {
		t.Errorf("the line has the run %d times: %s", n, &out)
	}
	for _, k := range []string{"time", "level", "msg"} {
		delete(line, k)
	}
	return line
}

func TestLinesHaveIDsOfTheirContext(t *testing.T) {
	t.Parallel()
	ctx := observe.WithIDs(t.Context(), slog.String(observe.KeyRun, "r"), slog.Int(observe.KeyShard, 7))
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{15: 1}, SpanID: trace.SpanID{7: 2}})
	inner, inSpan := observe.WithIDs(ctx, slog.Int(observe.KeyShard, 8)), trace.ContextWithSpanContext(t.Context(), span)
	for name, c := range map[string]struct {
		ctx  context.Context
		log  func(context.Context, *slog.Logger)
		want map[string]any
	}{
		"without ids": {t.Context(), func(ctx context.Context, l *slog.Logger) {
			l.InfoContext(ctx, "x", "a", 1)
		}, map[string]any{"a": 1.0}},
		"run and shard": {ctx, func(ctx context.Context, l *slog.Logger) {
			l.InfoContext(ctx, "x", "a", 1)
		}, map[string]any{"a": 1.0, "run": "r", "shard": 7.0}},
		"run in the line": {ctx, func(ctx context.Context, l *slog.Logger) {
			l.InfoContext(ctx, "x", "run", "other")
		}, map[string]any{"run": "other", "shard": 7.0}},
		"run in the logger": {ctx, func(ctx context.Context, l *slog.Logger) {
			l.With("run", "other").InfoContext(ctx, "x")
		}, map[string]any{"run": "other", "shard": 7.0}},
		"run in the line and the logger": {ctx, func(ctx context.Context, l *slog.Logger) {
			l.With("run", "r").InfoContext(ctx, "x", "run", "r")
		}, map[string]any{"run": "r", "shard": 7.0}},
		"innermost shard": {inner, func(ctx context.Context, l *slog.Logger) {
			l.InfoContext(ctx, "x")
		}, map[string]any{"run": "r", "shard": 8.0}},
		"no ids in a group": {ctx, func(ctx context.Context, l *slog.Logger) {
			l.WithGroup("g").InfoContext(ctx, "x", "a", 1)
		}, map[string]any{"g": map[string]any{"a": 1.0}}},
		"span": {inSpan, func(ctx context.Context, l *slog.Logger) {
			l.InfoContext(ctx, "x")
		}, map[string]any{"trace_id": "00000000000000000000000000000001", "span_id": "0000000000000002"}},
	} {
		if got := logged(t, c.ctx, c.log); !cmp.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}
