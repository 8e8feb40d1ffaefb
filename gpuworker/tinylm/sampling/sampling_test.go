package sampling_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"testing"

	"lukechampine.com/blake3"
	"pgregory.net/rapid"

	"rollout/gpuworker/tinylm/sampling"
	"rollout/shared/fault"
)

func params(change func(*sampling.Params)) sampling.Params {
	p := sampling.Default()
	change(&p)
	return p
}

// drawnTokens returns the distinct tokens that n seeds draw, in order of id.
func drawnTokens(t testing.TB, p sampling.Params, logits []float32, n int) []int32 {
	t.Helper()
	var ids []int32
	for seed := range n {
		id, err := sampling.New(p, uint64(seed), len(logits), nil).Next(logits, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// The logits are those of the probabilities 0.5, 0.25, 0.15 and 0.1, in another
// order: tokens 2, 0, 3, 1.
func TestParametersLimitTheTokensDrawn(t *testing.T) {
	t.Parallel()
	log := func(p float64) float32 { return float32(math.Log(p)) }
	logits := []float32{log(0.25), log(0.1), log(0.5), log(0.15)}
	for _, c := range []struct {
		name string
		p    sampling.Params
		want []int32
	}{
		{"defaults", sampling.Default(), []int32{0, 1, 2, 3}},
		{"temperature 0", params(func(p *sampling.Params) { p.Temperature = 0 }), []int32{2}},
		{"temperature 0 with top_k and top_p", params(func(p *sampling.Params) {
			p.Temperature, p.TopK, p.TopP = 0, 3, 0.9
		}), []int32{2}},
		{"temperature near 0", params(func(p *sampling.Params) { p.Temperature = 1e-30 }), []int32{2}},
		{"top_k 1", params(func(p *sampling.Params) { p.TopK = 1 }), []int32{2}},
		{"top_k 3", params(func(p *sampling.Params) { p.TopK = 3 }), []int32{0, 2, 3}},
		{"top_k above the vocabulary", params(func(p *sampling.Params) { p.TopK = 99 }), []int32{0, 1, 2, 3}},
		{"top_k off", params(func(p *sampling.Params) { p.TopK = -1 }), []int32{0, 1, 2, 3}},
		{"top_p below the likeliest", params(func(p *sampling.Params) { p.TopP = 0.1 }), []int32{2}},
		{"top_p within the second", params(func(p *sampling.Params) { p.TopP = 0.6 }), []int32{0, 2}},
		{"top_p within the third", params(func(p *sampling.Params) { p.TopP = 0.8 }), []int32{0, 2, 3}},
		{"top_p after top_k", params(func(p *sampling.Params) { // 0.5 of 0.75 is more than 0.6
			p.TopK, p.TopP = 2, 0.6
		}), []int32{2}},
		{"min_p 0.29", params(func(p *sampling.Params) { p.MinP = 0.29 }), []int32{0, 2, 3}},
		{"min_p 1", params(func(p *sampling.Params) { p.MinP = 1 }), []int32{2}},
		{"logit bias", params(func(p *sampling.Params) { p.Temperature, p.Bias = 0, map[int32]float32{1: 5} }), []int32{1}},
	} {
		if got := drawnTokens(t, c.p, logits, 500); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestDrawsFollowTheProbabilities(t *testing.T) {
	t.Parallel()
	logits := []float32{0, 1, 2, 3, 2.5}
	for name, p := range map[string]sampling.Params{
		"plain": sampling.Default(), "hot": params(func(p *sampling.Params) { p.Temperature = 2 }),
		"sorted": params(func(p *sampling.Params) { p.TopP = 0.999999 }),
	} {
		const n = 20000
		counts, sum := make([]int, len(logits)), 0.0
		s := sampling.New(p, 1, len(logits), nil)
		for range n {
			id, err := s.Next(logits, nil)
			if err != nil {
				t.Fatal(err)
			}
			counts[id]++
		}
		for _, l := range logits {
			sum += math.Exp(float64(l) / float64(p.Temperature))
		}
		for id, l := range logits {
			want := math.Exp(float64(l)/float64(p.Temperature)) / sum
			if got := float64(counts[id]) / n; math.Abs(got-want) > 4*math.Sqrt(want*(1-want)/n) {
				t.Errorf("%s: token %d was drawn %.4f of the time, its probability is %.4f", name, id, got, want)
			}
		}
	}
}

func TestLowestIDWinsAmongEqualLogits(t *testing.T) {
	t.Parallel()
	greedy := params(func(p *sampling.Params) { p.Temperature = 0 })
	if got := drawnTokens(t, greedy, []float32{1, 3, 2, 3, 3}, 3); !slices.Equal(got, []int32{1}) {
		t.Errorf("temperature 0 draws %v, want [1]", got)
	}
	one := params(func(p *sampling.Params) { p.TopK = 1 })
	if got := drawnTokens(t, one, []float32{1, 3, 2, 3, 3}, 30); !slices.Equal(got, []int32{1}) {
		t.Errorf("top_k 1 draws %v, want [1]", got)
	}
}

func TestPenaltiesApplyToTokensSeen(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		p      sampling.Params
		logits []float32
		prompt []int32
		want   []int32 // successive greedy draws
	}{
		{
			"no penalty", sampling.Params{TopP: 1, Repetition: 1},
			[]float32{2, 1.5, -1}, []int32{0}, []int32{0, 0, 0},
		},
		{
			"repetition counts the prompt", sampling.Params{TopP: 1, Repetition: 2},
			[]float32{2, 1.5, -1}, []int32{0}, []int32{1, 0, 0},
		},
		{
			"repetition of negative logits", sampling.Params{TopP: 1, Repetition: 2},
			[]float32{-1, -1.5, -4}, []int32{0}, []int32{1, 0, 0},
		},
		{
			"presence counts the answer once", sampling.Params{TopP: 1, Repetition: 1, Presence: 1},
			[]float32{2, 1.5, -1}, []int32{1}, []int32{0, 1, 0, 0},
		},
		{
			"frequency counts each occurrence", sampling.Params{TopP: 1, Repetition: 1, Frequency: 1},
			[]float32{2, 1.5, -1}, []int32{1}, []int32{0, 1, 0, 1, 0},
		},
	} {
		s := sampling.New(c.p, 0, len(c.logits), c.prompt)
		for i, want := range c.want {
			before := slices.Clone(c.logits)
			got, err := s.Next(c.logits, nil)
			if err != nil || got != want {
				t.Errorf("%s: draw %d is %d, %v; want %d", c.name, i, got, err, want)
			}
			if !slices.Equal(before, c.logits) {
				t.Errorf("%s: the logits were changed", c.name)
			}
		}
	}
}

func TestExcludedTokensAreNotDrawn(t *testing.T) {
	t.Parallel()
	s := sampling.New(sampling.Default(), 0, 3, nil)
	for range 100 {
		if id, err := s.Next([]float32{9, 0, 0}, []int32{0}); err != nil || id == 0 {
			t.Fatalf("drew %d, %v; 0 is excluded", id, err)
		}
	}
	if id, err := sampling.New(sampling.Default(), 0, 1, nil).Next([]float32{9}, []int32{0}); err != nil || id != 0 {
		t.Errorf("the only token is excluded: %d, %v", id, err)
	}
}

func TestLogitsThatAreNotFiniteAreCorrupt(t *testing.T) {
	t.Parallel()
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		_, err := sampling.New(sampling.Default(), 0, 2, nil).Next([]float32{0, float32(bad)}, nil)
		if !fault.Is(err, fault.Corrupt) || fault.ClassOf(err) != fault.Engine || !strings.Contains(err.Error(), "token 1") {
			t.Errorf("%v: %v, want a Corrupt fault that names token 1", bad, err)
		}
	}
}

// TestDrawsAgreeWithTheReference checks for any logits and parameters that a draw
// is one of the tokens that a simple implementation in float64 allows. Tokens
// close to a limit are allowed.
func TestDrawsAgreeWithTheReference(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		logits := rapid.SliceOfN(rapid.Float32Range(-40, 40), 1, 40).Draw(t, "logits")
		p := sampling.Params{
			Temperature: rapid.Float32Range(0.05, 5).Draw(t, "temperature"), TopK: rapid.IntRange(-1, 50).Draw(t, "top_k"),
			TopP: rapid.Float32Range(0.01, 1).Draw(t, "top_p"), MinP: rapid.Float32Range(0, 1).Draw(t, "min_p"), Repetition: 1,
		}
		id, err := sampling.New(p, rapid.Uint64().Draw(t, "seed"), len(logits), nil).Next(logits, nil)
		if err != nil {
			t.Fatal(err)
		}
		if allowed := allowedTokens(logits, p); !slices.Contains(allowed, int(id)) {
			t.Fatalf("drew token %d, want one of %v", id, allowed)
		}
	})
}

// allowedTokens returns the tokens that the parameters leave.
func allowedTokens(logits []float32, p sampling.Params) []int {
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return logits[order[a]] > logits[order[b]] })
	if p.TopK > 0 {
		order = order[:min(p.TopK, len(order))]
	}
	weight := func(id int) float64 {
		return math.Exp((float64(logits[id]) - float64(logits[order[0]])) / float64(p.Temperature))
	}
	all, before := 0.0, 0.0
	for _, id := range order {
		all += weight(id)
	}
	var left []int
	for _, id := range order {
		const slack = 1e-5
		if before < float64(p.TopP)*all+slack && weight(id) >= float64(p.MinP)-slack {
			left = append(left, id)
		}
		before += weight(id)
	}
	return left
}

func TestCheckNamesTheWrongParameter(t *testing.T) {
	t.Parallel()
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	type change = func(*sampling.Params)
	for name, changes := range map[string][]change{
		"temperature": {
			func(p *sampling.Params) { p.Temperature = -0.1 },
			func(p *sampling.Params) { p.Temperature = nan },
			func(p *sampling.Params) { p.Temperature = 101 },
		},
		"top_k": {func(p *sampling.Params) { p.TopK = -2 }},
		"top_p": {
			func(p *sampling.Params) { p.TopP = 0 },
			func(p *sampling.Params) { p.TopP = 1.1 },
			func(p *sampling.Params) { p.TopP = nan },
		},
		"min_p": {func(p *sampling.Params) { p.MinP = -1 }, func(p *sampling.Params) { p.MinP = 2 }},
		"repetition_penalty": {
			func(p *sampling.Params) { p.Repetition = 0 },
			func(p *sampling.Params) { p.Repetition = inf },
		},
		"presence_penalty":  {func(p *sampling.Params) { p.Presence = 3 }},
		"frequency_penalty": {func(p *sampling.Params) { p.Frequency = -3 }},
		"logit_bias": {
			func(p *sampling.Params) { p.Bias = map[int32]float32{10: 1} },
			func(p *sampling.Params) { p.Bias = map[int32]float32{-1: 1} },
			func(p *sampling.Params) { p.Bias = map[int32]float32{1: 101} },
		},
	} {
		for i, change := range changes {
			err := params(change).Check(10)
			var about *sampling.ParamError
			if !errors.As(err, &about) || about.Name != name {
				t.Errorf("%s, change %d: %v, want an error about %[1]s", name, i, err)
			}
			if !fault.Is(err, fault.Invalid) || fault.ClassOf(err) != fault.Refused {
				t.Errorf("%s, change %d: %v, want an Invalid fault of class refused", name, i, err)
			}
		}
	}
	for _, p := range []sampling.Params{
		sampling.Default(), {TopP: 1, Repetition: 0.5},
		{Temperature: 2, TopK: 1 << 30, TopP: 0.1, MinP: 1, Repetition: 100, Presence: 2, Frequency: -2},
	} {
		if err := p.Check(10); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
}

func TestLogprobsUseTheRawLogits(t *testing.T) {
	t.Parallel()
	logits := []float32{1, 3, 2, 3, -50000}
	sum := 0.0
	for _, l := range logits {
		sum += math.Exp(float64(l))
	}
	got, top := sampling.Logprobs(logits, 2, 3)
	if want := 2 - math.Log(sum); math.Abs(float64(got)-want) > 1e-6 {
		t.Errorf("log probability %v, want %v", got, want)
	}
	if len(top) != 3 || top[0].ID != 1 || top[1].ID != 3 || top[2].ID != 2 || top[2].Logprob != got {
		t.Errorf("top 3 are %+v, want tokens 1, 3 and 2", top)
	}
	if low, none := sampling.Logprobs(logits, 4, 0); low != sampling.MinLogprob || none != nil {
		t.Errorf("log probability %v, top %v; want %v and nil", low, none, sampling.MinLogprob)
	}
	if _, all := sampling.Logprobs(logits, 0, 20); len(all) != len(logits) {
		t.Errorf("top 20 of %d tokens are %d tokens", len(logits), len(all))
	}
}

// TestDrawsHaveTheGoldenDigest fixes the generator's numbers and the tokens drawn
// with them: they are the same on every machine.
func TestDrawsHaveTheGoldenDigest(t *testing.T) {
	t.Parallel()
	g := sampling.NewRNG(42)
	var numbers []string
	for range 3 {
		numbers = append(numbers, fmt.Sprintf("%016x", g.Uint64()))
	}
	if got, want := strings.Join(numbers, " "), "57e1faba65107204 f4abd143feb24055 7c816738c12903b2"; got != want {
		t.Errorf("the stream of seed 42 is %s, want %s", got, want)
	}
	logits := make([]float32, 97)
	random := sampling.NewRNG(1)
	var drawn []int32
	for _, p := range []sampling.Params{
		sampling.Default(),
		{Temperature: 0.7, TopK: 40, TopP: 0.9, MinP: 0.02, Repetition: 1.1, Presence: 0.1, Frequency: 0.1},
	} {
		s := sampling.New(p, 7, len(logits), []int32{1, 2, 3})
		for range 200 {
			for i := range logits {
				logits[i] = float32(float64(random.Float64()*12) - 6)
			}
			id, err := s.Next(logits, nil)
			if err != nil {
				t.Fatal(err)
			}
			drawn = append(drawn, id)
		}
	}
	text, err := json.Marshal(drawn)
	if err != nil {
		t.Fatal(err)
	}
	sum := blake3.Sum256(text)
	if got, want := hex.EncodeToString(sum[:8]), "1e1c4d5d87a82731"; got != want {
		t.Errorf("the tokens drawn have the digest %s, want %s: %s", got, want, text)
	}
}

func BenchmarkNext(b *testing.B) {
	logits := make([]float32, 1024)
	random := sampling.NewRNG(1)
	for i := range logits {
		logits[i] = float32(14 * math.Pow(random.Float64(), 8)) // few tokens are likely, as with a model
	}
	for name, p := range map[string]sampling.Params{
		"greedy":  {TopP: 1, Repetition: 1},
		"default": sampling.Default(),
		"top_p":   {Temperature: 0.8, TopP: 0.9, Repetition: 1},
		"all":     {Temperature: 0.8, TopK: 40, TopP: 0.9, MinP: 0.05, Repetition: 1.1},
	} {
		b.Run(name, func(b *testing.B) {
			s := sampling.New(p, 1, len(logits), nil)
			for b.Loop() {
				if _, err := s.Next(logits, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
