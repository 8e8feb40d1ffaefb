package plan_test

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"

	"rollout/events"
	"rollout/functions/plan"
	"rollout/shared/clock"
	"rollout/shared/config"
	"rollout/shared/host"
	"rollout/shared/input/inputtest"
	"rollout/shared/memory"
	"rollout/shared/record"
)

// BenchmarkRange plans one range of lines of 1.2 KB. An op is a line.
func BenchmarkRange(b *testing.B) {
	text := strings.Repeat("the quick brown fox jumps over the lazy dog, and on ", 22)
	for _, c := range []struct {
		name, format string
		dedupe       bool
	}{
		{"bare", "{\"prompt\":\"%d %s\"}\n", false},
		{"ids", "{\"id\":\"request-%d\",\"prompt\":\"%[1]d %s\"}\n", false},
		{"dedupe", "{\"prompt\":\"%d %s\"}\n", true},
	} {
		b.Run(c.name, func(b *testing.B) {
			const lines = 50_000
			var file strings.Builder
			for i := range lines {
				fmt.Fprintf(&file, c.format, i, text)
			}
			m := inputtest.Manifest(256)
			m.Config.Dedupe = config.Dedupe{Enabled: c.dedupe, Sampled: c.dedupe}
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				p := host.Ports{Blobs: memory.NewBucket(clock.System{}), Docs: memory.NewDocuments(),
					Queues: memory.NewQueues(clock.System{}), Clock: clock.System{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Source: "test"}
				m.Inputs = []record.Input{{Key: "prompts/0.jsonl", Version: inputtest.Put(b, p, "prompts/0.jsonl", file.String()), Size: int64(file.Len())}}
				inputtest.Save(b, p, record.ManifestKey(id), m)
				pl := plan.New(p)
				b.StartTimer()
				if err := pl.Submitted(b.Context(), events.RunSubmitted{Run: string(id)}); err != nil {
					b.Fatal(err)
				}
				if err := pl.Range(b.Context(), events.PlanRange{Run: string(id)}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*lines), "ns/line")
		})
	}
}
