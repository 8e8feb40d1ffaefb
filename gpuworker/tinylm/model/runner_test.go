package model

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"rollout/shared/fault"
)

var small = Config{
	Vocab: 61, Width: 40, Layers: 2, Heads: 2, HeadSize: 20, Hidden: 52, Context: 70, RopeBase: 10000, NormEpsilon: 1e-5,
}

// scaledModel returns a model with initial parameters times 5, so that its
// logits differ clearly.
func scaledModel(t testing.TB, c Config) *Model {
	t.Helper()
	m, err := New(c, 7)
	if err != nil {
		t.Fatal(err)
	}
	for i := range m.flat {
		m.flat[i] *= 5
	}
	return m
}

func randomTokens(n int, seed uint64, vocab int) []int32 {
	g := rng{state: seed}
	tokens := make([]int32, n)
	for i := range tokens {
		tokens[i] = int32(g.next() % uint64(vocab))
	}
	return tokens
}

// logitsByToken returns the logits after each token of a sequence. It runs the
// sequence by itself, one token per step.
func logitsByToken(t *testing.T, m *Model, tokens []int32) [][]float32 {
	t.Helper()
	r, s := NewRunner(m, 1), m.NewSession()
	var all [][]float32
	for i := range tokens {
		out := make([]float32, m.config.Vocab)
		if err := r.Step([]Slot{{s, tokens[i : i+1]}}, [][]float32{out}); err != nil {
			t.Fatal(err)
		}
		all = append(all, out)
	}
	return all
}

func TestLogitsDoNotDependOnHowThePromptIsCut(t *testing.T) {
	t.Parallel()
	m := scaledModel(t, small)
	tokens := randomTokens(small.Context, 1, small.Vocab)
	want := logitsByToken(t, m, tokens)
	for _, piece := range []int{2, 3, 7, 16, 47, 48, 49, len(tokens)} {
		r, s := NewRunner(m, 1), m.NewSession()
		for start := 0; start < len(tokens); start += piece {
			end := min(start+piece, len(tokens))
			out := make([]float32, small.Vocab)
			if err := r.Step([]Slot{{s, tokens[start:end]}}, [][]float32{out}); err != nil {
				t.Fatal(err)
			}
			sameBits(t, fmt.Sprintf("pieces of %d, after token %d", piece, end), out, want[end-1])
		}
	}
	err := NewRunner(m, 1).AllLogits(tokens, func(i int, row []float32) {
		sameBits(t, fmt.Sprintf("all at once, token %d", i), row, want[i])
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLogitsDoNotDependOnTheRestOfTheBatch(t *testing.T) {
	t.Parallel()
	m := scaledModel(t, small)
	var prompts [][]int32
	var want [][]float32
	for i := range 33 {
		prompts = append(prompts, randomTokens(1+i*5%30, uint64(i), small.Vocab))
		want = append(want, logitsByToken(t, m, prompts[i])[len(prompts[i])-1])
	}
	for _, threads := range []int{1, 2, 16} {
		var slots []Slot
		var outs [][]float32
		for _, tokens := range prompts {
			slots = append(slots, Slot{m.NewSession(), tokens})
			outs = append(outs, make([]float32, small.Vocab))
		}
		if err := NewRunner(m, threads).Step(slots, outs); err != nil {
			t.Fatal(err)
		}
		for i := range slots {
			sameBits(t, fmt.Sprintf("%d threads, slot %d", threads, i), outs[i], want[i])
		}
	}
}

func TestForkAndTruncateContinueFromThePosition(t *testing.T) {
	t.Parallel()
	m := scaledModel(t, small)
	r := NewRunner(m, 1)
	tokens := randomTokens(40, 3, small.Vocab)
	want := logitsByToken(t, m, tokens)[39]
	step := func(s *Session, tokens []int32) []float32 {
		out := make([]float32, small.Vocab)
		if err := r.Step([]Slot{{s, tokens}}, [][]float32{out}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	s := m.NewSession()
	step(s, tokens[:21])
	fork := s.Fork()
	step(s, randomTokens(30, 9, small.Vocab))
	sameBits(t, "fork", step(fork, tokens[21:]), want)
	s.Truncate(21)
	sameBits(t, "truncated", step(s, tokens[21:]), want)
	if s.Len() != 40 {
		t.Errorf("length %d, want 40", s.Len())
	}
}

func TestStepRefusesBadSlotsAndLeavesSessions(t *testing.T) {
	t.Parallel()
	m, other := scaledModel(t, small), scaledModel(t, small)
	r := NewRunner(m, 1)
	s := m.NewSession()
	room := [][]float32{nil}
	if err := r.Step([]Slot{{s, []int32{1, 2}}}, room); err != nil {
		t.Fatal(err)
	}
	for name, slots := range map[string][]Slot{
		"token too large":         {{s, []int32{1, int32(small.Vocab)}}},
		"negative token":          {{s, []int32{-1}}},
		"no tokens":               {{s, nil}},
		"longer than the context": {{s, make([]int32, small.Context-1)}},
		"another model's session": {{other.NewSession(), []int32{1}}},
		"no session":              {{nil, []int32{1}}},
		"the same session twice":  {{s, []int32{1}}, {s, []int32{1}}},
	} {
		if err := r.Step(slots, make([][]float32, len(slots))); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want an Invalid fault", name, err)
		}
		if s.Len() != 2 {
			t.Fatalf("%s: session has %d positions, want 2", name, s.Len())
		}
	}
}

func TestLogitsThatAreNotFiniteAreCorrupt(t *testing.T) {
	t.Parallel()
	m := scaledModel(t, small)
	m.layers[1].down[3] = float32(math.NaN())
	s := m.NewSession()
	err := NewRunner(m, 1).Step([]Slot{{s, []int32{1, 2}}}, [][]float32{make([]float32, small.Vocab)})
	if !fault.Is(err, fault.Corrupt) || s.Len() != 0 {
		t.Errorf("%v with %d positions, want a Corrupt fault and 0", err, s.Len())
	}
}

func TestFromTensorsRestoresTheModelAndRefusesBadTensors(t *testing.T) {
	t.Parallel()
	m := scaledModel(t, small)
	ts := m.Tensors()
	slices.Reverse(ts)
	again, err := FromTensors(small, ts)
	if err != nil {
		t.Fatal(err)
	}
	sameBits(t, "parameters", again.flat, m.flat)
	ts[0].Data[0]++
	if again.norm[0] == m.norm[0] {
		t.Error("FromTensors kept the caller's array")
	}
	bad := func(name string, change func(ts []Tensor) []Tensor) {
		ts := m.Tensors()
		for i := range ts {
			ts[i].Data = slices.Clone(ts[i].Data)
		}
		if _, err := FromTensors(small, change(ts)); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v, want an Invalid fault", name, err)
		}
	}
	bad("missing tensor", func(ts []Tensor) []Tensor { return ts[1:] })
	bad("tensor given twice", func(ts []Tensor) []Tensor { return append(ts, ts[0]) })
	bad("unknown tensor", func(ts []Tensor) []Tensor { return append(ts, Tensor{Name: "lm_head.weight"}) })
	bad("another shape", func(ts []Tensor) []Tensor { ts[0].Shape[0]++; return ts })
	bad("truncated data", func(ts []Tensor) []Tensor { ts[0].Data = ts[0].Data[1:]; return ts })
	bad("infinite value", func(ts []Tensor) []Tensor { ts[3].Data[5] = float32(math.Inf(1)); return ts })
}

func TestImpossibleShapesAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Config){
		"no layers":    func(c *Config) { c.Layers = 0 },
		"negative":     func(c *Config) { c.Width = -8 },
		"odd head":     func(c *Config) { c.HeadSize = 15 },
		"huge":         func(c *Config) { c.Vocab, c.Width = maxSize, maxSize },
		"no rope base": func(c *Config) { c.RopeBase = 0 },
		"no epsilon":   func(c *Config) { c.NormEpsilon = 0 },
		"epsilon NaN":  func(c *Config) { c.NormEpsilon = float32(math.NaN()) },
	} {
		c := small
		change(&c)
		if _, err := New(c, 1); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func sameBits(t testing.TB, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}
