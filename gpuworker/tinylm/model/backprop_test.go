package model

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"rollout/gpuworker/tinylm/kernel"
	"rollout/shared/fault"
)

// tiny has heads that together are wider than the residual stream.
var tiny = Config{
	Vocab: 23, Width: 12, Layers: 2, Heads: 2, HeadSize: 8, Hidden: 10, Context: 40, RopeBase: 100, NormEpsilon: 1e-5,
}

// variedBatch returns a batch with every feature that a batch can have: unequal
// lengths, targets that are not counted, packed documents, a sequence of one
// token.
func variedBatch(vocab int) []Sequence {
	sequence := func(n int, seed uint64, starts ...int32) Sequence {
		q := Sequence{Tokens: randomTokens(n, seed, vocab), Targets: randomTokens(n, seed+1, vocab), Starts: starts}
		for i := range q.Targets {
			if i%5 == 3 {
				q.Targets[i] = -1
			}
		}
		return q
	}
	uncounted := sequence(3, 50)
	for i := range uncounted.Targets {
		uncounted.Targets[i] = -100
	}
	return []Sequence{
		sequence(17, 10), sequence(1, 20), sequence(40, 30, 13, 14, 30), uncounted, sequence(26, 40, 0, 9),
	}
}

// TestGradientsAgreeWithFiniteDifferences compares the gradient of every
// parameter with the slope of the loss of the float64 reference.
func TestGradientsAgreeWithFiniteDifferences(t *testing.T) {
	t.Parallel()
	m := scaledModel(t, tiny)
	batch := variedBatch(tiny.Vocab)
	g := NewGradients(m)
	const scale = 0.5
	sum, counted, err := NewBackprop(m, 2).Loss(batch, scale, g)
	if err != nil {
		t.Fatal(err)
	}
	ref := newReference(m)
	if want := ref.loss(batch); math.Abs(sum-want) > 1e-5*want {
		t.Errorf("loss %v, want the reference's %v", sum, want)
	}
	if want := 68; counted != want {
		t.Errorf("counted %d targets, want %d", counted, want)
	}
	for _, x := range g.Tensors() {
		checkSlope(t, x, ref.tensors[x.Name], func() float64 { return scale * ref.loss(batch) })
	}
}

func TestRewardGradientsAgreeWithFiniteDifferences(t *testing.T) {
	t.Parallel()
	m := scaledModel(t, tiny)
	batch := variedBatch(tiny.Vocab)
	random := rng{state: 5}
	score, d := make([]float32, tiny.Width), make([]float32, len(batch))
	random.normal(score, 1)
	random.normal(d, 1)
	b, g, dScore := NewBackprop(m, 2), NewGradients(m), make([]float32, len(score))
	rewards, err := b.Rewards(batch, score)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.RewardGradient(batch, score, d, g, dScore); err != nil {
		t.Fatal(err)
	}
	ref, wide := newReference(m), widen(score)
	for i, want := range ref.rewards(batch, wide) {
		if math.Abs(float64(rewards[i])-want) > 1e-5*max(1, math.Abs(want)) {
			t.Errorf("reward %d is %v, want the reference's %v", i, rewards[i], want)
		}
	}
	weighted := func() float64 {
		sum := 0.0
		for i, r := range ref.rewards(batch, wide) {
			sum += float64(d[i]) * r
		}
		return sum
	}
	checkSlope(t, Tensor{Name: "score.weight", Data: dScore}, wide, weighted)
	for _, x := range g.Tensors() {
		checkSlope(t, x, ref.tensors[x.Name], weighted)
	}
}

// checkSlope compares about five elements of a gradient with the central
// differences of f with respect to the parameter.
func checkSlope(t *testing.T, gradient Tensor, parameter []float64, f func() float64) {
	t.Helper()
	const h = 1e-5
	largest := 0.0
	for _, v := range gradient.Data {
		largest = max(largest, math.Abs(float64(v)))
	}
	if largest == 0 {
		t.Errorf("%s: the gradient is zero", gradient.Name)
	}
	for i := 0; i < len(parameter); i += max(1, len(parameter)/5) {
		original := parameter[i]
		parameter[i] = original + h
		up := f()
		parameter[i] = original - h
		down := f()
		parameter[i] = original
		want := (up - down) / (2 * h)
		if got := float64(gradient.Data[i]); math.Abs(got-want) > 2e-5*largest {
			t.Errorf("%s[%d]: gradient %v, want %v", gradient.Name, i, got, want)
		}
	}
}

func TestGradientsDoNotDependOnThreadsOrBatchParts(t *testing.T) {
	t.Parallel()
	m := scaledModel(t, small)
	var batch []Sequence
	for i := range 24 {
		n := 1 + i*7%50
		batch = append(batch, Sequence{
			Tokens: randomTokens(n, uint64(i), small.Vocab), Targets: randomTokens(n, uint64(i+100), small.Vocab),
		})
	}
	want := NewGradients(m)
	wantSum, _, err := NewBackprop(m, 1).Loss(batch, 0.25, want)
	if err != nil {
		t.Fatal(err)
	}
	for _, threads := range []int{2, 3, 16} {
		b, g := NewBackprop(m, threads), NewGradients(m)
		for range 2 { // the second call reuses the scratch of the first
			g.Zero()
			sum, _, err := b.Loss(batch, 0.25, g)
			if err != nil {
				t.Fatal(err)
			}
			if sum != wantSum {
				t.Errorf("%d threads: loss %v, want %v", threads, sum, wantSum)
			}
			sameBits(t, fmt.Sprintf("gradients with %d threads", threads), g.flat, want.flat)
			if sum, _, _ := b.Loss(batch, 0.25, nil); sum != wantSum {
				t.Errorf("%d threads: loss going forward only %v, want %v", threads, sum, wantSum)
			}
		}
	}
	g, b := NewGradients(m), NewBackprop(m, 2)
	for _, part := range [][]Sequence{batch[:1], batch[1:17], batch[17:]} {
		if _, _, err := b.Loss(part, 0.25, g); err != nil {
			t.Fatal(err)
		}
	}
	sameBits(t, "gradients of a batch in parts", g.flat[len(g.embed):], want.flat[len(want.embed):])
}

func TestPackedDocumentsDoNotAffectEachOther(t *testing.T) {
	t.Parallel()
	m := scaledModel(t, small)
	whole := Sequence{
		Tokens: randomTokens(60, 1, small.Vocab), Targets: randomTokens(60, 2, small.Vocab), Starts: []int32{25, 26, 42},
	}
	var separate []Sequence
	for d := range whole.documents {
		separate = append(separate, Sequence{Tokens: whole.Tokens[d.start:d.end], Targets: whole.Targets[d.start:d.end]})
	}
	b, together, alone := NewBackprop(m, 1), NewGradients(m), NewGradients(m)
	sum, _, err := b.Loss([]Sequence{whole}, 1, together)
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := b.Loss(separate, 1, alone)
	if err != nil {
		t.Fatal(err)
	}
	if sum != want {
		t.Errorf("loss of packed documents %v, want %v", sum, want)
	}
	sameBits(t, "gradients", together.flat, alone.flat)
}

func TestLossMatchesTheRunnersLogits(t *testing.T) {
	t.Parallel()
	m := scaledModel(t, small)
	q := Sequence{Tokens: randomTokens(70, 1, small.Vocab), Targets: randomTokens(70, 2, small.Vocab)}
	sum, _, err := NewBackprop(m, 1).Loss([]Sequence{q}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := 0.0
	err = NewRunner(m, 1).AllLogits(q.Tokens, func(i int, row []float32) {
		want += crossEntropy(m.kernels, slices.Clone(row), int(q.Targets[i]), 1)
	})
	if err != nil {
		t.Fatal(err)
	}
	if sum != want {
		t.Errorf("loss %v, want %v as computed from the runner's logits", sum, want)
	}
}

func TestLossRefusesBadSequencesAndLeavesGradients(t *testing.T) {
	t.Parallel()
	m := scaledModel(t, small)
	g, b := NewGradients(m), NewBackprop(m, 1)
	good := Sequence{Tokens: []int32{1, 2}, Targets: []int32{2, 3}}
	for name, q := range map[string]Sequence{
		"no tokens":               {},
		"unknown token":           {Tokens: []int32{61}, Targets: []int32{1}},
		"unknown target":          {Tokens: []int32{1}, Targets: []int32{61}},
		"fewer targets":           {Tokens: []int32{1, 2}, Targets: []int32{1}},
		"start beyond the end":    {Tokens: []int32{1}, Targets: []int32{1}, Starts: []int32{1}},
		"descending starts":       {Tokens: []int32{1, 2, 3}, Targets: []int32{1, 2, 3}, Starts: []int32{2, 1}},
		"negative start":          {Tokens: []int32{1, 2, 3}, Targets: []int32{1, 2, 3}, Starts: []int32{-1}},
		"longer than the context": {Tokens: make([]int32, 71), Targets: make([]int32, 71)},
	} {
		if _, _, err := b.Loss([]Sequence{good, q}, 1, g); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want an Invalid fault", name, err)
		}
	}
	if i := slices.IndexFunc(g.flat, func(v float32) bool { return v != 0 }); i >= 0 {
		t.Errorf("gradient %d changed", i)
	}
}

func TestLossThatIsNotFiniteIsCorrupt(t *testing.T) {
	t.Parallel()
	m := scaledModel(t, small)
	m.layers[0].up[9] = float32(math.Inf(1))
	batch := []Sequence{{Tokens: []int32{1, 2}, Targets: []int32{2, 3}}}
	_, _, err := NewBackprop(m, 2).Loss(batch, 1, NewGradients(m))
	if !fault.Is(err, fault.Corrupt) {
		t.Errorf("%v, want a Corrupt fault", err)
	}
}

func TestLossOfExtremeLogitsIsFinite(t *testing.T) {
	t.Parallel()
	const far = 3e38
	for _, c := range []struct {
		logits []float32
		target int
		want   float64
	}{
		{[]float32{far, -far, 0}, 0, 0},
		{[]float32{far, -far, 0}, 2, far},
		{[]float32{far, -far, 0}, 1, 2 * far},
		{[]float32{-far, -far, -far}, 1, math.Log(3)},
		{[]float32{100, 0, 0}, 1, 100},
		{[]float32{0, 0, 0, 0, 0, 0, 0, 0, 0, -104}, 9, 104 + math.Log(9)},
	} {
		for _, k := range []kernel.Set{kernel.Best(), kernel.Scalar()} {
			d := slices.Clone(c.logits)
			if got := crossEntropy(k, d, c.target, 1); math.Abs(got-c.want) > 1e-6*max(1, c.want) {
				t.Errorf("%v: loss of %v for %d is %v, want %v", k, c.logits, c.target, got, c.want)
			}
			sum := 0.0
			for _, v := range d {
				sum += float64(v)
			}
			if !k.Finite(d) || math.Abs(sum) > 1e-6 {
				t.Errorf("%v: gradient of %v is %v, want finite values that sum to 0", k, c.logits, d)
			}
		}
	}
}

func TestSequenceWithTooMuchAttentionIsRefused(t *testing.T) {
	t.Parallel()
	c := Config{
		Vocab: 8, Width: 2, Layers: 8, Heads: 4, HeadSize: 2, Hidden: 2, Context: 1 << 14, RopeBase: 10000, NormEpsilon: 1e-5,
	}
	m, err := New(c, 1)
	if err != nil {
		t.Fatal(err)
	}
	n := c.Context
	long := Sequence{Tokens: make([]int32, n), Targets: make([]int32, n)}
	if _, _, err := NewBackprop(m, 1).Loss([]Sequence{long}, 1, nil); !fault.Is(err, fault.Invalid) {
		t.Errorf("%v, want an Invalid fault", err)
	}
}
