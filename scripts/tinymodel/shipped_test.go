package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"rollout/gpuworker/tinylm/weights"
	"rollout/scripts/tinymodel/bits"
	"rollout/scripts/tinymodel/heldout"
)

// mostBits is what the shipped model needs for a byte that it has never seen,
// at most: with the 8-bit weights that ship.
const mostBits = 1.40

func TestTheShippedModelPredictsWhatWasHeldOut(t *testing.T) {
	t.Parallel()
	b, err := weights.Shipped()
	if err != nil {
		t.Fatal(err)
	}
	documents, err := heldout.Documents()
	if err != nil {
		t.Fatal(err)
	}
	r, err := bits.Measure(t.Context(), b, documents, runtime.GOMAXPROCS(0))
	if err != nil {
		t.Fatal(err)
	}
	if r.Bytes < 200_000 {
		t.Errorf("only %d bytes are held out", r.Bytes)
	}
	t.Logf("%.4f bits per byte", r.PerByte())
	if r.PerByte() > mostBits {
		t.Errorf("it needs %.4f bits per byte, more than %.2f", r.PerByte(), mostBits)
	}
}

func TestTheModelCardIsOfTheShippedModel(t *testing.T) {
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
			t.Errorf("the card does not name the %s %s", what, want)
		}
	}
}
