package main

import (
	"rollout/gpuworker/engine/tiny/model"
	"rollout/gpuworker/engine/tiny/tokenizer"
)

// tinyModel is a fresh model of the size that is measured, with any tokenizer
// of its vocabulary: how fast it is does not depend on what it has learnt.
func tinyModel() (*model.Model, *tokenizer.Tokenizer, error) {
	c := model.Config{Vocab: 1024, Width: 128, Layers: 5, Heads: 2, HeadSize: 64, Hidden: 352, Context: 256, RopeBase: 10_000, NormEpsilon: 1e-5}
	merges := make([]tokenizer.Merge, c.Vocab-tokenizer.MinVocab)
	for i := range merges {
		merges[i] = tokenizer.Merge{Left: int32('a' + i/200), Right: int32(i % 200)}
	}
	t, err := tokenizer.New(merges)
	if err != nil {
		return nil, nil, err
	}
	m, err := model.New(c, 1)
	return m, t, err
}
