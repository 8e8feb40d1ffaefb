package training

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/training/dataset"
	"rollout/shared/config"
)

// BenchmarkStep measures steps of a model of 1.1 million parameters on one thread.
// "bare" measures only losses and gradients.
func BenchmarkStep(b *testing.B) {
	l := sft(func(s *config.SFT) { s.Minibatch, s.Budget.MaxSteps, s.LossOn.Kind = 8, 1<<30, config.LossFull })
	prompt := strings.Repeat("the cat sat on the mat and ", 4)
	l.rows = strings.Repeat(`{"prompt":"`+prompt+`","completion":"slept there."}`+"\n", 100)
	shape := model.Config{
		Vocab: 1024, Width: 128, Layers: 5, Heads: 2, HeadSize: 64, Hidden: 352, Context: 128,
		RopeBase: 10000, NormEpsilon: 1e-5,
	}
	m, err := model.New(shape, 7)
	if err != nil {
		b.Fatal(err)
	}
	path := filepath.Join(b.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, []byte(l.rows), 0o600); err != nil {
		b.Fatal(err)
	}
	file, err := dataset.OpenFile(path)
	if err != nil {
		b.Fatal(err)
	}
	defer file.Close()
	rows, err := OpenDataset(b.Context(), config.AlgorithmSFT, file)
	if err != nil {
		b.Fatal(err)
	}
	base := Base{URI: config.ModelTiny, Model: m, Tokenizer: bytesOnly(b)}
	t, err := New(Options{Algorithm: l.algorithm, Base: base, Dataset: rows, Threads: 1})
	if err != nil {
		b.Fatal(err)
	}
	b.Run("step", func(b *testing.B) {
		tokens := 0
		for b.Loop() {
			r, err := t.Step(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			tokens += r.Tokens
		}
		b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
	})
	b.Run("bare", func(b *testing.B) {
		batch, err := t.readRows(0, 8)
		if err != nil {
			b.Fatal(err)
		}
		tokens := 0
		for b.Loop() {
			sum, err := t.objective.learn(batch, t.gradients)
			if err != nil {
				b.Fatal(err)
			}
			tokens += sum.tokens
		}
		b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
	})
}
