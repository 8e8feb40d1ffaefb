package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"rollout/gpuworker/tinylm/weights"
	"rollout/scripts/tinymodel/heldout"
)

// mostBits is the maximum number of bits per byte that the shipped model, with its
// 8-bit weights, may need for the held-out documents.
const mostBits = 1.40

func TestShippedModelPredictsTheHeldOutDocuments(t *testing.T) {
	t.Parallel()
	b, err := weights.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	documents, err := heldout.Documents()
	if err != nil {
		t.Fatal(err)
	}
	r, err := measureBits(t.Context(), b, documents, runtime.GOMAXPROCS(0))
	if err != nil {
		t.Fatal(err)
	}
	if r.bytes < 200_000 {
		t.Errorf("the held-out documents have only %d bytes", r.bytes)
	}
	t.Logf("%.4f bits per byte", r.perByte())
	if r.perByte() > mostBits {
		t.Errorf("the model needs %.4f bits per byte, want at most %.2f", r.perByte(), mostBits)
	}
}

func TestModelCardHasTheShippedModelsDigests(t *testing.T) {
	t.Parallel()
	b, err := weights.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	card, err := os.ReadFile(filepath.Join("..", "..", "gpuworker", "tinylm", "weights", "MODEL_CARD.md"))
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]string{"digest": b.Digest, "tokenizer": b.Tokenizer.Hash()} {
		if !strings.Contains(string(card), want) {
			t.Errorf("the model card does not have the %s %s", what, want)
		}
	}
}
