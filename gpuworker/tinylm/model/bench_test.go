package model

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"rollout/gpuworker/tinylm/kernel"
	"rollout/gpuworker/tinylm/optimize"
)

// shipped has about the shape of the shipped model: 1.14 M parameters.
var shipped = Config{
	Vocab: 1024, Width: 128, Layers: 5, Heads: 2, HeadSize: 64, Hidden: 352, Context: 256,
	RopeBase: 10000, NormEpsilon: 1e-5,
}

// perCPUSecond reports the tokens processed per second of processor time. It
// measures the whole process, so the benchmarks of this file must not overlap.
func perCPUSecond(b *testing.B, f func() (tokens int)) {
	f()
	before, tokens := cpu(), 0
	for b.Loop() {
		tokens += f()
	}
	b.ReportMetric(float64(tokens)/(cpu()-before).Seconds(), "tokens/cpu-s")
	b.ReportMetric(float64(tokens)/b.Elapsed().Seconds(), "tokens/s")
}

func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTraining measures whole steps: loss, gradients, clipping and AdamW.
func BenchmarkTraining(b *testing.B) {
	for _, kernels := range []kernel.Set{kernel.Best(), kernel.Scalar()} {
		for _, threads := range []int{1, 2} {
			if kernels == kernel.Scalar() && threads > 1 {
				continue
			}
			b.Run(fmt.Sprintf("%v/threads=%d", kernels, threads), func(b *testing.B) {
				m, err := New(shipped, 1)
				if err != nil {
					b.Fatal(err)
				}
				m.UseKernels(kernels)
				var batch []Sequence
				for i := range 16 {
					batch = append(batch, Sequence{
						Tokens: randomTokens(128, uint64(i), 1024), Targets: randomTokens(128, uint64(i+99), 1024),
					})
				}
				bp, g := NewBackprop(m, threads), NewGradients(m)
				state := optimize.AdamWState{
					Parameters: m.flat, Gradients: g.flat,
					First: make([]float32, len(m.flat)), Second: make([]float32, len(m.flat)),
				}
				on := optimize.Compute{Kernels: kernels, Threads: threads}
				step := 0
				perCPUSecond(b, func() int {
					step++
					g.Zero()
					if _, _, err := bp.Loss(batch, 1./2048, g); err != nil {
						b.Fatal(err)
					}
					if _, err := optimize.Clip(on, g.flat, 1); err != nil {
						b.Fatal(err)
					}
					a := optimize.AdamW{Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8}
					if err := a.Step(on, state, step, 1e-3); err != nil {
						b.Fatal(err)
					}
					return 2048
				})
			})
		}
	}
}

// BenchmarkSampling measures steps of one token per sequence, each after 64 to
// 190 tokens.
func BenchmarkSampling(b *testing.B) {
	m := scaledModel(b, shipped)
	for _, batch := range []int{1, 4, 32} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			r := NewRunner(m, 1)
			slots, logits := make([]Slot, batch), make([][]float32, batch)
			for i := range slots {
				logits[i] = make([]float32, shipped.Vocab)
				slots[i] = Slot{m.NewSession(), randomTokens(64, uint64(i), shipped.Vocab)}
			}
			if err := r.Step(slots, logits); err != nil {
				b.Fatal(err)
			}
			perCPUSecond(b, func() int {
				for i := range slots {
					if slots[i].Session.Len() > 190 {
						slots[i].Session.Truncate(64)
					}
					slots[i].Tokens = []int32{7}
				}
				if err := r.Step(slots, logits); err != nil {
					b.Fatal(err)
				}
				return batch
			})
		})
	}
}

// BenchmarkPrompt measures the processing of a prompt of 200 tokens.
func BenchmarkPrompt(b *testing.B) {
	m := scaledModel(b, shipped)
	r, tokens := NewRunner(m, 1), randomTokens(200, 1, shipped.Vocab)
	out := [][]float32{make([]float32, shipped.Vocab)}
	perCPUSecond(b, func() int {
		if err := r.Step([]Slot{{m.NewSession(), tokens}}, out); err != nil {
			b.Fatal(err)
		}
		return len(tokens)
	})
}
