package bits

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/tokenizer"
	"rollout/gpuworker/tinylm/weights"
	"rollout/scripts/tinymodel/corpus"
	"rollout/shared/fault"
)

func TestEachTokenIsATargetOnceAfterHalfAContext(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(2, 9).Draw(t, "context")
		tokens := make([]int32, rapid.IntRange(1, 60).Draw(t, "tokens"))
		for i := range tokens {
			tokens[i] = int32(i)
		}
		var targets []int32
		for _, w := range overlap(tokens, size) {
			if len(w.Tokens) > size {
				t.Fatalf("a window of %d tokens in a context of %d", len(w.Tokens), size)
			}
			for i, target := range w.Targets {
				if target < 0 {
					continue
				}
				targets = append(targets, target)
				if w.Tokens[i] != target-1 {
					t.Fatalf("%d is predicted after %d", target, w.Tokens[i])
				}
				if before := i + 1; before < min(int(target), size/2) {
					t.Fatalf("%d is predicted from %d tokens", target, before)
				}
			}
		}
		if !slices.Equal(targets, tokens[1:]) {
			t.Fatalf("the targets are %v", targets)
		}
	})
}

func bundle(t *testing.T) *weights.Bundle {
	t.Helper()
	tok, err := tokenizer.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(model.Config{Vocab: tok.Vocab(), Width: 16, Layers: 1, Heads: 1, HeadSize: 16, Hidden: 16, Context: 8, RopeBase: 10000, NormEpsilon: 1e-5}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return &weights.Bundle{Model: m, Tokenizer: tok}
}

func TestAModelThatKnowsNothingNeedsTheLogarithmOfItsVocabulary(t *testing.T) {
	t.Parallel()
	b := bundle(t)
	clear(b.Model.Tensors()[0].Data) // all logits are 0
	text := strings.Repeat("light ", 20)
	r, err := Measure(t.Context(), b, []corpus.Document{{ID: "a", Text: text}, {ID: "b", Text: "x"}}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if r.Bytes != 121 || r.Tokens != 123 { // and two ends
		t.Errorf("%d bytes, %d tokens", r.Bytes, r.Tokens)
	}
	if want := math.Log2(260) * 123 / 121; math.Abs(r.PerByte()-want) > 1e-4 {
		t.Errorf("%.5f bits per byte, want %.5f", r.PerByte(), want)
	}
}

func TestMeasuringEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Measure(ctx, bundle(t), []corpus.Document{{ID: "a", Text: "x"}}, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, err := Measure(t.Context(), bundle(t), []corpus.Document{{ID: "a"}}, 1); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a document that is no text: %v", err)
	}
}
