package main

import (
	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/weights"
)

// tinyModel is the model that rollout comes with, which is sampled from.
func tinyModel() (*weights.Bundle, error) { return weights.Shipped() }

// tinyStudent is what is trained: a fresh model of 1.1 million parameters,
// whatever the shipped one is, so that figures compare over time.
func tinyStudent() (*model.Model, error) {
	return model.New(model.Config{Vocab: 1024, Width: 128, Layers: 5, Heads: 2, HeadSize: 64, Hidden: 352, Context: 256, RopeBase: 10_000, NormEpsilon: 1e-5}, 1)
}
