// Package heldout embeds the documents that the shipped model was not trained on,
// so that the model can be evaluated without making the corpus. `tinymodel corpus`
// writes the file.
package heldout

import (
	"bytes"
	"compress/gzip"
	_ "embed"

	"rollout/scripts/tinymodel/corpus"
)

//go:embed heldout.jsonl.gz
var file []byte

// Documents returns the held-out documents.
func Documents() ([]corpus.Document, error) {
	r, err := gzip.NewReader(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	return corpus.Read(r)
}
