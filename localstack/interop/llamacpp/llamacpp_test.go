package llamacpp_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"rollout/gpuworker/tinylm/export"
	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/gpuworker/tinylm/weights"
	"rollout/localstack/interop/llamacpp"
	"rollout/localstack/tinytest"
)

const root = "../../.."

// start exports the model and loads it into llama.cpp.
func start(t *testing.T, m *model.Model, tok *tokenizer.Tokenizer, e export.Encoding) *llamacpp.Process {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	exported := export.Model{Name: "test", Config: m.Config(), Tensors: m.Tensors(), Tokenizer: tok}
	if err := export.GGUF(f, exported, e); err != nil {
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

func TestTextsHaveTheSameIDs(t *testing.T) {
	t.Parallel()
	tok := tinytest.Tokenizer(t)
	p := start(t, tinytest.Model(t, tinytest.Config()), tok, export.F32)
	for _, text := range append(tinytest.Texts(), tokenizer.EndOfText, "a"+tokenizer.User+"b") {
		theirs, err := p.Tokenize(text)
		if err != nil {
			t.Fatal(err)
		}
		if ours := tok.Encode(nil, text); !slices.Equal(ours, theirs) {
			t.Errorf("%q encodes to %v, with llama.cpp to %v", text, ours, theirs)
		}
	}
}

// prompts are 20 different prompts.
var prompts = []string{
	"In the beginning", "And God said", "The light", "they've", "\n\n", "119", "naïve", "光", "a", "void; and",
	"the deep. \"They", "And the earth was without form, and void;\nand darkness", " ", "He didn't; we're",
	"QUESTION: what is light?\nANSWER:", "façades, Τὸ φῶς", "1 2 3", "I'd", "stones, and it's the LORD's.",
	"\tThe",
}

func TestGreedyTokensAreTheSame(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*model.Config){
		"similar to the shipped model":          func(*model.Config) {},
		"heads wider than the model":            func(c *model.Config) { c.Heads = 3 },
		"small heads and another rope base":     func(c *model.Config) { c.HeadSize, c.Heads, c.RopeBase = 32, 4, 500_000 },
		"vocabulary larger than the tokenizer":  func(c *model.Config) { c.Vocab += 28 },
		"one layer and an odd hidden dimension": func(c *model.Config) { c.Layers, c.Hidden = 1, 37 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tok := tinytest.Tokenizer(t)
			c := tinytest.Config()
			change(&c)
			m := tinytest.Model(t, c)
			p := start(t, m, tok, export.F32)
			for _, prompt := range prompts {
				ids := tok.Encode(nil, prompt)
				ours := tinytest.Greedy(t, m, ids, 24)
				theirs, lead, err := p.Greedy(ids, 24)
				if err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(ours, theirs) {
					t.Errorf("after %q: %v, with llama.cpp %v; smallest lead %g", prompt, ours, theirs, lead)
				}
			}
		})
	}
}

func TestShippedModelGivesTheSameTokens(t *testing.T) {
	t.Parallel()
	b, err := weights.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, b.Model, b.Tokenizer, export.F32)
	for _, prompt := range append(prompts, tinytest.Texts()...) {
		ids := b.Tokenizer.Encode(nil, prompt)
		theirs, err := p.Tokenize(prompt)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(ids, theirs) {
			t.Errorf("%q encodes to %v, with llama.cpp to %v", prompt, ids, theirs)
		}
	}
	least := float32(math.MaxFloat32)
	for _, prompt := range prompts {
		ids := b.Tokenizer.Encode(nil, prompt)
		n := min(64, b.Model.Config().Context-len(ids))
		ours := tinytest.Greedy(t, b.Model, ids, n)
		theirs, lead, err := p.Greedy(ids, n)
		if err != nil {
			t.Fatal(err)
		}
		least = min(least, lead)
		if !slices.Equal(ours, theirs) {
			t.Errorf("after %q: %v, with llama.cpp %v; smallest lead %g", prompt, ours, theirs, lead)
		}
	}
	t.Logf("smallest lead of a chosen token: %g", least)
}

func TestLogitsAreAsCloseAsTheEncodingAllows(t *testing.T) {
	t.Parallel()
	for e, most := range map[export.Encoding]float64{
		export.F32: 1e-4, export.F16: 0.03, export.BF16: 0.2, export.Q8: 0.3,
	} {
		t.Run(e.String(), func(t *testing.T) {
			t.Parallel()
			tok := tinytest.Tokenizer(t)
			m := tinytest.Model(t, tinytest.Config())
			p := start(t, m, tok, e)
			ids := tok.Encode(nil, tinytest.Corpus)[:100]
			theirs, err := p.Logits(ids)
			if err != nil {
				t.Fatal(err)
			}
			worst, size := 0.0, 0.0
			for i, v := range tinytest.Last(t, m, ids) {
				worst = max(worst, math.Abs(float64(v-theirs[i])))
				size = max(size, math.Abs(float64(v)))
			}
			t.Logf("logits up to %.3g differ by up to %.3g after %d tokens", size, worst, len(ids))
			if worst > most*size || len(theirs) != m.Config().Vocab {
				t.Errorf("%d logits up to %.3g differ by %.3g, want at most %.3g", len(theirs), size, worst, most*size)
			}
		})
	}
}
