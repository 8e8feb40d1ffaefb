// Package weights encodes and decodes the file of a tiny model: its tensors, its
// shape and its tokenizer. It embeds the model that rollout ships with, which
// MODEL_CARD.md describes.
//
// The file is a safetensors file (eight bytes with the length of the header, the
// header in JSON, the tensors), so that other programs can read it. Its metadata
// contain the shape and the tokenizer. Tensors are F32, BF16, or I8 with one
// factor for each row; the tensor "x.scale" holds the factors of tensor "x".
//
// Decode does not trust a file: it checks sizes before it allocates memory, and
// the file's length bounds the memory. The package works on bytes and never
// accesses a file system.
package weights
