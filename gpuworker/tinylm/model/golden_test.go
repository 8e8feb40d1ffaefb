package model

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"testing"

	"lukechampine.com/blake3"

	"rollout/gpuworker/tinylm/kernel"
	"rollout/gpuworker/tinylm/optimize"
)

// golden is the digest of a small model, its moments and its losses after ten
// steps of training. It is the same on every processor, with or without vector
// instructions, with any number of threads. It changes only with the arithmetic
// itself; training resumed from an older snapshot then gives other bits than it
// would have given before.
const golden = "e713951952661b87c1b217016aca3ff2c4d3ac11653a47b351c3e4b371f5f4c9"

func TestTenTrainingStepsHaveTheGoldenDigest(t *testing.T) {
	t.Parallel()
	sets := []kernel.Set{kernel.Scalar()}
	if kernel.Best() != kernel.Scalar() {
		sets = append(sets, kernel.Best())
	}
	for _, kernels := range sets {
		for _, threads := range []int{1, 2, 16} {
			t.Run(fmt.Sprintf("%v/%d threads", kernels, threads), func(t *testing.T) {
				t.Parallel()
				if got := tenSteps(t, kernels, threads); got != golden {
					t.Errorf("digest %s, want %s", got, golden)
				}
			})
		}
	}
}

func tenSteps(t *testing.T, kernels kernel.Set, threads int) string {
	t.Helper()
	c := Config{
		Vocab: 96, Width: 64, Layers: 2, Heads: 1, HeadSize: 64, Hidden: 88, Context: 48, RopeBase: 10000, NormEpsilon: 1e-5,
	}
	m, err := New(c, 42)
	if err != nil {
		t.Fatal(err)
	}
	m.UseKernels(kernels)
	b, g := NewBackprop(m, threads), NewGradients(m)
	first, second := make([]float32, len(m.flat)), make([]float32, len(m.flat))
	on := optimize.Compute{Kernels: kernels, Threads: threads}
	rate := optimize.Schedule{Shape: optimize.Cosine, Peak: 3e-3, Warmup: 2, Total: 10, Floor: 0.1}
	hash := blake3.New(32, nil)
	for step := 1; step <= 10; step++ {
		g.Zero()
		batch := variedBatch(c.Vocab)
		for i := range batch {
			n := len(batch[i].Tokens)
			batch[i].Tokens = randomTokens(n, uint64(step*100+i), 40) // a part of the vocabulary: something to learn
		}
		sum, counted, err := b.Loss(batch, 1./64, g)
		if err != nil {
			t.Fatal(err)
		}
		norm, err := optimize.Clip(on, g.flat, 1)
		if err != nil {
			t.Fatal(err)
		}
		a := optimize.AdamW{Beta1: 0.9, Beta2: 0.95, Epsilon: 1e-8, WeightDecay: 0.1}
		state := optimize.AdamWState{Parameters: m.flat, Gradients: g.flat, First: first, Second: second}
		if err := a.Step(on, state, step, rate.Rate(step)); err != nil {
			t.Fatal(err)
		}
		for _, v := range []float64{sum, norm, float64(counted)} {
			hash.Write(binary.LittleEndian.AppendUint64(nil, math.Float64bits(v)))
		}
	}
	for _, x := range [][]float32{m.flat, first, second} {
		for _, v := range x {
			hash.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
		}
	}
	// The digest includes logits of the trained model.
	out := make([]float32, c.Vocab)
	slots := []Slot{{m.NewSession(), randomTokens(20, 1, c.Vocab)}}
	if err := NewRunner(m, threads).Step(slots, [][]float32{out}); err != nil {
		t.Fatal(err)
	}
	for _, v := range out {
		hash.Write(binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
	}
	return hex.EncodeToString(hash.Sum(nil))
}
