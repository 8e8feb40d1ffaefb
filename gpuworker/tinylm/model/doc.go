// Package model is the decoder of the tiny engine: a Llama-architecture
// transformer (RMSNorm, rotary positions, SwiGLU, tied embeddings) in float32.
// It runs forward with a cache of keys and values, and backward for training.
//
// A Model holds the parameters. A Runner computes next-token logits for many
// Sessions at once. A Backprop computes losses and gradients. Each result
// depends only on the parameters and on its own sequence. It does not depend on
// the rest of the batch, on how a prompt is cut into steps, on the number of
// threads, or on the processor (package kernel explains how).
//
// Tensors have the names, shapes [out, in] and layout of Hugging Face's Llama,
// whose rotary pairs are (i, i + HeadSize/2), so that other programs can read
// them. The package never reads files, tokenises, samples or chooses learning
// rates.
package model
