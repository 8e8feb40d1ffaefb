package main

import (
	"bytes"
	"os"
	"testing"
)

func TestCommittedAssemblyMatchesTheGenerator(t *testing.T) {
	t.Parallel()
	have, err := os.ReadFile("../../product_amd64.s")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(have, source()) {
		t.Error("product_amd64.s differs from the generator's output: run `go generate` in gpuworker/tinylm/kernel")
	}
}
