// Package model is the decoder of the tiny engine: a Llama-architecture
// transformer (RMSNorm, rotary positions, SwiGLU, tied embeddings) in float32
// that runs forward with a cache of keys and values, and backward for training.
//
// A Model is its parameters. A Runner computes next-token logits for many
// Sessions at once; a Backprop computes losses and gradients. Each result is a
// function of the parameters and of its own sequence alone: not of the batch it
// is in, of how a prompt is cut into steps, of threads, or of the processor
// (package kernel says how).
//
// Tensors carry the names, shapes [out, in] and layout of Hugging Face's Llama
// (the rotary pairs are (i, i + HeadSize/2)), so that other programs can read
// them. The package will never read files, tokenise, sample or choose learning
// rates.
package model
