package main

import (
	"rollout/gpuworker/engine/tiny/model"
	"rollout/gpuworker/engine/tiny/tokenizer"
)

func tinyModel() (*model.Model, *tokenizer.Tokenizer, error) {
	var merges []tokenizer.Merge
	for i := range int32(764) {
		merges = append(merges, tokenizer.Merge{Left: 97 + i/200, Right: i % 200})
	}
	t, err := tokenizer.New(merges)
	if err != nil {
		return nil, nil, err
	}
	m, err := model.New(model.Config{Vocab: 1024, Width: 128, Layers: 5, Heads: 2, HeadSize: 64, Hidden: 352, Context: 256, RopeBase: 10_000, NormEpsilon: 1e-5}, 1)
	return m, t, err
}
