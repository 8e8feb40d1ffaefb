package main

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

func TestEachTokenIsPredictedOnceAfterHalfAContext(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(2, 9).Draw(t, "context")
		tokens := make([]int32, rapid.IntRange(1, 60).Draw(t, "tokens"))
		for i := range tokens {
			tokens[i] = int32(i)
		}
		var targets []int32
		for _, w := range overlappingWindows(tokens, size) {
			if len(w.Tokens) > size {
				t.Fatalf("a window has %d tokens, more than the context of %d", len(w.Tokens), size)
			}
			for i, target := range w.Targets {
				if target < 0 {
					continue
				}
				targets = append(targets, target)
				if w.Tokens[i] != target-1 {
					t.Fatalf("token %d is predicted after token %d", target, w.Tokens[i])
				}
				if before := i + 1; before < min(int(target), size/2) {
					t.Fatalf("token %d is predicted after only %d tokens", target, before)
				}
			}
		}
		if !slices.Equal(targets, tokens[1:]) {
			t.Fatalf("the targets are %v, want %v", targets, tokens[1:])
		}
	})
}

func untrainedBundle(t *testing.T) *weights.Bundle {
	t.Helper()
	tok, err := tokenizer.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := model.New(model.Config{
		Vocab: tok.Vocab(), Width: 16, Layers: 1, Heads: 1, HeadSize: 16, Hidden: 16, Context: 8,
		RopeBase: 10000, NormEpsilon: 1e-5,
	}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return &weights.Bundle{Model: m, Tokenizer: tok}
}

func TestUniformModelNeedsTheLogarithmOfItsVocabulary(t *testing.T) {
	t.Parallel()
	b := untrainedBundle(t)
	clear(b.Model.Tensors()[0].Data) // all logits become 0
	text := strings.Repeat("light ", 20)
	r, err := measureBits(t.Context(), b, []corpus.Document{{ID: "a", Text: text}, {ID: "b", Text: "x"}}, 2)
	if err != nil {
		t.Fatal(err)
	}
	if r.bytes != 121 || r.tokens != 123 { // 121 bytes and two EndOfText
		t.Errorf("%d bytes, %d tokens; want 121 and 123", r.bytes, r.tokens)
	}
	if want := math.Log2(260) * 123 / 121; math.Abs(r.perByte()-want) > 1e-4 {
		t.Errorf("%.5f bits per byte, want %.5f", r.perByte(), want)
	}
}

func TestMeasureBitsRefusesChatsAndStopsWhenCanceled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := untrainedBundle(t)
	_, err := measureBits(ctx, b, []corpus.Document{{ID: "a", Text: "x"}}, 1)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	_, err = measureBits(t.Context(), b, []corpus.Document{{ID: "a"}}, 1)
	if fault.KindOf(err) != fault.Invalid {
		t.Errorf("document without a text: %v, want an Invalid fault", err)
	}
}
