package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"rollout/gpuworker/engine"
	tinyengine "rollout/gpuworker/engine/tiny"
	"rollout/gpuworker/tinylm/export"
	"rollout/gpuworker/tinylm/kernel"
	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/optimize"
	"rollout/gpuworker/tinylm/weights"
)

// Sizes of the tiny engine's work.
const (
	tinyPrompt = 16  // tokens of a prompt; their time is not counted
	tinyRow    = 128 // tokens of a training sequence
	tinyRows   = 16  // sequences of a batch

	tinySeconds = 1.5 // least time of sampling
)

// tinyCommands are hidden commands that the measure tiny runs in separate processes,
// to measure their time and memory.
func tinyCommands() []*cobra.Command {
	var streams, threads, steps int
	sample := &cobra.Command{Use: "tiny-sample", Short: "Sample from the tiny engine's model", Hidden: true,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return printResult(tinySample(c.Context(), streams, threads))
		}}
	answer := &cobra.Command{Use: "tiny-answer", Short: "Send requests to the tiny engine", Hidden: true,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return printResult(tinyAnswers(c.Context(), streams, threads))
		}}
	train := &cobra.Command{Use: "tiny-train", Short: "Train a small model", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return printResult(tinyTrain(c.Context(), steps, threads)) }}
	write := &cobra.Command{Use: "tiny-gguf FILE", Short: "Export the tiny engine's model", Hidden: true,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return tinyGGUF(args[0]) }}
	for _, c := range []*cobra.Command{sample, answer, train} {
		c.Flags().IntVar(&threads, "threads", 1, "threads")
	}
	for _, c := range []*cobra.Command{sample, answer} {
		c.Flags().IntVar(&streams, "streams", 1, "concurrent sequences")
	}
	train.Flags().IntVar(&steps, "steps", 5, "optimizer steps")
	return []*cobra.Command{sample, answer, train, write}
}

// work is the amount of work and its time, without the set-up.
type work struct {
	Tokens     int     `json:"tokens"`
	Seconds    float64 `json:"seconds"`
	CPUSeconds float64 `json:"cpu_seconds"`
}

// printResult prints the work as JSON.
func printResult(w work, err error) error {
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(w)
}

// timed runs f and adds its tokens and time.
func (w *work) timed(f func() (tokens int, err error)) error {
	before, err := cpuTime()
	if err != nil {
		return err
	}
	start := time.Now()
	n, err := f()
	if err != nil {
		return err
	}
	w.Seconds += time.Since(start).Seconds()
	after, err := cpuTime()
	w.CPUSeconds += (after - before).Seconds()
	w.Tokens += n
	return err
}

// tinySample samples the likeliest token in each stream until the context is full,
// and repeats that for tinySeconds.
func tinySample(ctx context.Context, streams, threads int) (w work, err error) {
	b, err := tinyModel()
	if err != nil {
		return w, err
	}
	m := b.Model
	r := model.NewRunner(m, threads)
	slots, rows := make([]model.Slot, streams), make([][]float32, streams)
	for i := range rows {
		rows[i] = make([]float32, m.Config().Vocab)
	}
	for w.Seconds < tinySeconds && ctx.Err() == nil {
		for i := range slots {
			slots[i] = model.Slot{Session: m.NewSession(), Tokens: tinyTokens(tinyPrompt, m.Config().Vocab)}
		}
		if err := r.Step(slots, rows); err != nil {
			return w, err
		}
		err := w.timed(func() (int, error) {
			n := m.Config().Context - tinyPrompt
			for range n {
				for i := range slots {
					slots[i].Tokens = []int32{likeliest(rows[i])}
				}
				if err := r.Step(slots, rows); err != nil {
					return 0, err
				}
			}
			return n * streams, nil
		})
		if err != nil {
			return w, err
		}
	}
	return w, ctx.Err()
}

// likeliest is the token with the highest logit.
func likeliest(row []float32) int32 {
	best := 0
	for i, v := range row {
		if v > row[best] {
			best = i
		}
	}
	return int32(best)
}

// tinyTokens returns n arbitrary tokens.
func tinyTokens(n, vocab int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(i * 7919 % vocab)
	}
	return out
}

// tinyGGUF exports the model with float32 weights.
func tinyGGUF(path string) error {
	b, err := tinyModel()
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	err = export.GGUF(f, export.Model{Name: b.Name, Config: b.Model.Config(), Tensors: b.Model.Tensors(),
		Tokenizer: b.Tokenizer}, export.F32)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("export the model to %s: %w", path, err)
	}
	return nil
}

// tinyTrain runs training steps on batches of tinyRows × tinyRow tokens, as
// pretraining and fine-tuning do: loss, gradients, clipping, AdamW.
func tinyTrain(ctx context.Context, steps, threads int) (w work, err error) {
	m, err := tinyStudent()
	if err != nil {
		return w, err
	}
	batch := make([]model.Sequence, tinyRows)
	tokens := tinyTokens(tinyRow+1, m.Config().Vocab)
	for i := range batch {
		batch[i] = model.Sequence{Tokens: tokens[:tinyRow], Targets: tokens[1:]}
	}
	b, g := model.NewBackprop(m, threads), model.NewGradients(m)
	state := optimize.AdamWState{
		Parameters: m.Flat(), Gradients: g.Flat(),
		First: make([]float32, len(m.Flat())), Second: make([]float32, len(m.Flat())),
	}
	on := optimize.Compute{Kernels: kernel.Best(), Threads: threads}
	rule := optimize.AdamW{Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.1}
	step := func(n int) (int, error) {
		g.Zero()
		if _, _, err := b.Loss(batch, 1/float32(tinyRows*tinyRow), g); err != nil {
			return 0, err
		}
		if _, err := optimize.Clip(on, g.Flat(), 1); err != nil {
			return 0, err
		}
		return tinyRows * tinyRow, rule.Step(on, state, n, 1e-3)
	}
	if _, err := step(1); err != nil { // allocates the memory
		return w, err
	}
	for i := range steps {
		if ctx.Err() != nil {
			return w, ctx.Err()
		}
		if err := w.timed(func() (int, error) { return step(i + 2) }); err != nil {
			return w, err
		}
	}
	return w, nil
}

// tinyModel is the built-in model, which is sampled from.
func tinyModel() (*weights.Bundle, error) { return weights.Shipped() }

// tinyStudent is the trained model: a new one of 1.1 million parameters, so that
// figures stay comparable when the built-in model changes.
func tinyStudent() (*model.Model, error) {
	return model.New(model.Config{Vocab: 1024, Width: 128, Layers: 5, Heads: 2, HeadSize: 64, Hidden: 352,
		Context: 256, RopeBase: 10_000, NormEpsilon: 1e-5}, 1)
}

// tinyAnswers sends concurrent requests to the tiny engine until each stream has
// some answers. It includes parsing, scheduling and sampling with temperature and
// top_p.
func tinyAnswers(ctx context.Context, streams, threads int) (w work, err error) {
	b, err := tinyModel()
	if err != nil {
		return w, err
	}
	e, err := tinyengine.New(tinyengine.Config{Name: b.Name, Model: tinyengine.Decoder(b.Model, threads),
		Tokenizer: b.Tokenizer})
	if err != nil {
		return w, err
	}
	const answers = 2 // of each stream
	err = w.timed(func() (int, error) {
		var tokens atomic.Int64
		errs := make([]error, streams)
		var wait sync.WaitGroup
		for s := range streams {
			wait.Go(func() {
				for i := range answers {
					body := fmt.Sprintf(`{"prompt":"In the beginning","max_tokens":200,"ignore_eos":true,"temperature":1,`+
						`"top_p":0.9,"seed":%d}`, s*answers+i)
					a, err := e.Answer(ctx, engine.Request{Endpoint: engine.Completion, Body: []byte(body)}, func() {})
					tokens.Add(a.Usage.CompletionTokens)
					errs[s] = errors.Join(errs[s], err)
				}
			})
		}
		wait.Wait()
		return int(tokens.Load()), errors.Join(errs...)
	})
	return w, errors.Join(err, e.Close())
}
