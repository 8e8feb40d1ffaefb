package rollout

import (
	"fmt"
	"io"
	"testing"

	"rollout/shared/config"
)

// BenchmarkAnswers measures what an answer costs the coordinator's process: taking in a
// batch and planning the next one, and writing the files at the end.
func BenchmarkAnswers(b *testing.B) {
	const tickets = 1024
	c := config.Run{Runner: &config.Runner{RolloutBatchSize: tickets}, Decodes: []config.Decode{{Samples: 4}},
		Answer: &config.Answer{Pattern: "#([0-9a-f])"}}
	var lines []string
	for n := range 2 * tickets {
		lines = append(lines, ticketLine(fmt.Sprint(n), fmt.Sprintf("%x", n%16)))
	}
	f := newFixture(b, c, lines...)
	outcomes, stages := f.run(2*tickets*4, func(n int, _ string) answer {
		return answer{text: fmt.Sprintf("an answer of some words, as they are, #%x", n%16)}
	})
	if len(stages) != 2 {
		b.Fatalf("the run has %d stages", len(stages))
	}
	b.Run("append", func(b *testing.B) {
		for b.Loop() {
			g := Growing{Blobs: f.blobs, Manifest: f.m, Outcomes: func(yield func(Outcome, error) bool) {
				for _, o := range outcomes[:tickets*4] {
					if !yield(o, nil) {
						return
					}
				}
			}}
			if err := g.Append(b.Context(), stages[1].Input, io.Discard); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/(tickets*4), "µs/answer")
	})
	b.Run("publish", func(b *testing.B) {
		for b.Loop() {
			if _, err := f.ended(f.blobs, len(outcomes)).Publish(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(len(outcomes)), "µs/answer")
	})
}
