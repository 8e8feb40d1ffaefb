// Package export writes a tiny model in the formats that other software reads:
// GGUF (llama.cpp and what builds on it) and safetensors with the files that
// Hugging Face's libraries expect beside it.
//
// The same model gives the same bytes anywhere. Tensors are written row by
// row, so memory does not grow with the model. The formats' facts are those of
// their specifications (ggml's docs/gguf.md, version 3; safetensors' README)
// and of llama.cpp's own converter. The package never reads these formats and
// never touches a file system: it writes to what it is given.
package export
