package llamacpp_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rollout/gpuworker/engine/tiny/export"
	"rollout/gpuworker/engine/tiny/model"
	"rollout/gpuworker/engine/tiny/tokenizer"
	"rollout/localstack/llamacpp"
)

const root = "../.."

// start exports the model and loads it into llama.cpp.
func start(t *testing.T, m *model.Model, tok *tokenizer.Tokenizer, e export.Encoding) *llamacpp.Peer {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := export.GGUF(f, export.Model{Name: "test", Config: m.Config(), Tensors: m.Tensors(), Tokenizer: tok}, e); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	p, err := llamacpp.Start(context.WithoutCancel(t.Context()), path, llamacpp.Options{Root: root})
	if errors.Is(err, llamacpp.ErrNotInstalled) {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// text is what the test's tokenizer learns from.
var text = strings.Split(strings.Repeat(`In the beginning God created the heaven and the earth. And the earth was without form, and void;
and darkness was upon the face of the deep. "They'll see," said he; they've 119 stones, and it's the LORD's.
	The light, the lights, the lighter: naïve façades, Τὸ φῶς, 光あれ. He didn't; we're; I'm; I'd.
`, 3), "\n")

func learn(t *testing.T, vocab int) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Train(slices.Values(text), vocab)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// lively is a fresh model whose weights are large enough that its logits
// differ clearly.
func lively(t *testing.T, c model.Config) *model.Model {
	t.Helper()
	m, err := model.New(c, 7)
	if err != nil {
		t.Fatal(err)
	}
	dice := rand.New(rand.NewPCG(1, 2))
	for _, tensor := range m.Tensors() {
		for i := range tensor.Data {
			if len(tensor.Shape) == 1 {
				tensor.Data[i] = 0.5 + dice.Float32()
			} else {
				tensor.Data[i] *= 6
			}
		}
	}
	return m
}

func small(vocab int) model.Config {
	return model.Config{Vocab: vocab, Width: 128, Layers: 3, Heads: 2, HeadSize: 64, Hidden: 352, Context: 256, RopeBase: 10_000, NormEpsilon: 1e-5}
}

func TestTextsHaveTheSameIDs(t *testing.T) {
	t.Parallel()
	tok := learn(t, 384)
	p := start(t, lively(t, small(384)), tok, export.F32)
	texts := []string{
		"", " ", "  ", "\n", "\n\n \n", "a", " a", "the light", "The  light   of\tthe\n\nworld \n", "they'll they've it's I'm I'd we're 'tis '' 'S",
		"119 1 22 333 4444 3.14159 1,000,000", "<|endoftext|>", "a<|user|>b", "naïve façades Τὸ φῶς 光あれ", "🙂🙂 👩‍👩‍👧‍👦 ❤️", "e\u0301 \u00a0\u2003x\u3000y\u200bz",
		"x²½ ٣٤ Ⅷ ①", "_under_score--dash…", "\r\n\r\n", "مرحبا بالعالم", "שלום", "नमस्ते", "ภาษาไทย", "한국어", "\ufeffBOM", "\u0001\u007f\u0085", strings.Repeat("a", 1000), strings.Repeat("the ", 300),
		strings.Repeat(" ", 100) + "x", "don'tell 'RE 'Ve", "ǅ ʰ ß ﬁ", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈 𒀀", "\u2028\u2029 \u180e",
	}
	dice := rand.New(rand.NewPCG(3, 4))
	alphabet := []rune("'srevldtm  \n\t09aZé²\u00a0\u2028!?.光🙂thelight")
	for range 200 {
		var b strings.Builder
		for range dice.IntN(60) {
			b.WriteRune(alphabet[dice.IntN(len(alphabet))])
		}
		texts = append(texts, b.String())
	}
	for _, text := range texts {
		theirs, err := p.Tokenize(text)
		if err != nil {
			t.Fatal(err)
		}
		if ours := tok.Encode(nil, text); !slices.Equal(ours, theirs) {
			t.Errorf("%q: ours %v, llama.cpp %v", text, ours, theirs)
		}
	}
}

// greedy are the n likeliest tokens after a prompt, by our own model.
func greedy(t *testing.T, m *model.Model, prompt []int32, n int) (out []int32) {
	t.Helper()
	r, s := model.NewRunner(m, 1), m.NewSession()
	row := make([]float32, m.Config().Vocab)
	next := prompt
	for range n {
		if err := r.Step([]model.Slot{{Session: s, Tokens: next}}, [][]float32{row}); err != nil {
			t.Fatal(err)
		}
		best := int32(0)
		for i, v := range row {
			if v > row[best] {
				best = int32(i)
			}
		}
		next = []int32{best}
		out = append(out, best)
	}
	return out
}

func TestGreedyTokensAreTheSame(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*model.Config){
		"as shipped":                     func(*model.Config) {},
		"heads wider than the model":     func(c *model.Config) { c.Heads = 3 },
		"small heads and another base":   func(c *model.Config) { c.HeadSize, c.Heads, c.RopeBase = 32, 4, 500_000 },
		"more ids than the tokenizer's":  func(c *model.Config) { c.Vocab += 28 },
		"one layer, an odd hidden width": func(c *model.Config) { c.Layers, c.Hidden = 1, 37 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok := learn(t, 384)
			c := small(384)
			change(&c)
			m := lively(t, c)
			p := start(t, m, tok, export.F32)
			prompts := []string{"In the beginning", "And God said", "The light", "they've", "\n\n", "119", "naïve", "光", "a", "void; and"}
			for _, prompt := range prompts {
				ids := tok.Encode(nil, prompt)
				ours := greedy(t, m, ids, 32)
				theirs, lead, err := p.Greedy(ids, 32)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(ours, theirs) {
					t.Errorf("%q (least lead %g): ours %v, llama.cpp %v", prompt, lead, ours, theirs)
				}
			}
		})
	}
}

func TestLogitsAreAsCloseAsTheEncodingAllows(t *testing.T) {
	t.Parallel()
	for e, most := range map[export.Encoding]float64{export.F32: 1e-4, export.F16: 0.03, export.BF16: 0.2, export.Q8: 0.3} {
		t.Run(e.String(), func(t *testing.T) {
			t.Parallel()
			tok := learn(t, 384)
			m := lively(t, small(384))
			p := start(t, m, tok, e)
			ids := tok.Encode(nil, text[0]+text[1])
			theirs, err := p.Logits(ids)
			if err != nil {
				t.Fatal(err)
			}
			var ours []float32
			if err := model.NewRunner(m, 1).All(ids, func(_ int, row []float32) { ours = slices.Clone(row) }); err != nil {
				t.Fatal(err)
			}
			worst, size := 0.0, 0.0
			for i, v := range ours {
				worst = max(worst, math.Abs(float64(v-theirs[i])))
				size = max(size, math.Abs(float64(v)))
			}
			t.Logf("logits up to %.3g differ by up to %.3g after %d tokens", size, worst, len(ids))
			if worst > most*size || len(theirs) != len(ours) {
				t.Errorf("of %d and %d logits, up to %.3g, one differs by %.3g", len(ours), len(theirs), size, worst)
			}
		})
	}
}
