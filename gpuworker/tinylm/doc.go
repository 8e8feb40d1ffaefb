// Package tinylm is the root of the tiny engine's library: a small language model
// that runs and trains on a CPU, with the same bits on every machine. The package
// itself contains no code; its sub-packages form the library.
//
// Data flows through them in these orders:
//
//	generation   text → tokenizer → model.Runner → sampling → tokenizer → text
//	training     text → tokenizer → model.Backprop → optimize → model.Model
//	storage      model.Model and tokenizer → weights (rollout's own file)
//	                                       → export  (GGUF, Hugging Face)
//
// The sub-packages are:
//
//   - kernel: the arithmetic, with and without vector instructions. It defines the
//     order of every sum, on which the equality of bits depends.
//   - model: the decoder, with its parameters, the forward pass with a cache of
//     keys and values, and the backward pass.
//   - tokenizer: text to token ids and back; learns vocabularies.
//   - sampling: draws the next token from logits.
//   - scheduler: runs the sequences of many requests through one model, with
//     continuous batching. It knows a model only as its interface Model.
//   - optimize: SGD, AdamW, gradient clipping and learning rate schedules.
//   - weights: a model with its tokenizer as one file; embeds the shipped model.
//   - export: the formats of other software.
//
// Of these, only export and weights import model and tokenizer; model, optimize
// and sampling import kernel. From the rest of rollout they import only package
// fault. They access no files and no network. Three folders use them:
// gpuworker/engine/tiny serves a model as an engine, gpuworker/training fine-tunes
// one, and scripts/tinymodel makes the shipped one.
package tinylm
