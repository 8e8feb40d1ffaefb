package model

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"rollout/gpuworker/tinylm/kernel"
	"rollout/gpuworker/tinylm/optimize"
)

// shipped is about the shape of the model that is shipped: 1.14 M parameters.
var shipped = Config{Vocab: 1024, Width: 128, Layers: 5, Heads: 2, HeadSize: 64, Hidden: 352, Context: 256, RopeBase: 10000, NormEpsilon: 1e-5}

// perCPUSecond reports how many tokens a second of processor time was good for.
// It counts the whole process, so benchmarks of this file must not overlap.
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

// BenchmarkTraining is whole steps: loss, gradients, clipping and AdamW.
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
					batch = append(batch, Sequence{Tokens: text(128, uint64(i), 1024), Targets: text(128, uint64(i+99), 1024)})
				}
				bp, g := NewBackprop(m, threads), NewGradients(m)
				first, second := make([]float32, len(m.flat)), make([]float32, len(m.flat))
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
					if err := a.Step(on, m.flat, g.flat, first, second, step, 1e-3); err != nil {
						b.Fatal(err)
					}
					return 2048
				})
			})
		}
	}
}

// BenchmarkSampling is steps of one token a sequence, from 64 tokens on.
func BenchmarkSampling(b *testing.B) {
	m := lively(b, shipped)
	for _, batch := range []int{1, 4, 32} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			r := NewRunner(m, 1)
			slots, logits := make([]Slot, batch), make([][]float32, batch)
			for i := range slots {
				logits[i] = make([]float32, shipped.Vocab)
				slots[i] = Slot{m.NewSession(), text(64, uint64(i), shipped.Vocab)}
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

// BenchmarkPrompt is a prompt of 200 tokens.
func BenchmarkPrompt(b *testing.B) {
	m := lively(b, shipped)
	r, tokens := NewRunner(m, 1), text(200, 1, shipped.Vocab)
	out := [][]float32{make([]float32, shipped.Vocab)}
	perCPUSecond(b, func() int {
		if err := r.Step([]Slot{{m.NewSession(), tokens}}, out); err != nil {
			b.Fatal(err)
		}
		return len(tokens)
	})
}
