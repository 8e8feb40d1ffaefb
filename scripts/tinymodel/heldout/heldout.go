// Package heldout carries the documents that the shipped model has never seen,
// so that anyone can judge it without making the corpus. `tinymodel corpus`
// wrote the file.
package heldout

import (
	"bytes"
	"compress/gzip"
	_ "embed"

	"rollout/scripts/tinymodel/corpus"
)

//go:embed heldout.jsonl.gz
var file []byte

// Documents returns them.
func Documents() ([]corpus.Document, error) {
	r, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	return corpus.Read(r)
}
