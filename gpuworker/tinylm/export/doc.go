// Package export writes a tiny model in the formats of other software: GGUF, for
// llama.cpp and software based on it, and safetensors with the other files that
// Hugging Face's libraries expect in a model's folder.
//
// The same model gives the same bytes on every machine. Tensors are written row
// by row, so that memory does not grow with the model. The formats follow their
// specifications (ggml's docs/gguf.md, version 3; safetensors' README) and
// llama.cpp's own converter. The package writes to io.Writers of the caller; it
// never reads these formats and never accesses a file system.
package export
