// Package weights keeps a tiny model in one file: its tensors, its shape and
// its tokenizer. It carries the model that rollout ships with; MODEL_CARD.md
// says what that is, how it was made and what it is good for.
//
// A file is a safetensors file (a length of eight bytes, a head in JSON, the
// tensors), so that other programs can look into it. Its metadata has the shape
// and the tokenizer. Tensors are F32, BF16, or I8 with one factor for each row:
// the factors of tensor "x" are the tensor "x.scale".
//
// Files are hostile until they are read: sizes are checked before memory is
// taken, and memory is bounded by the file's length. The package never touches
// a file system.
package weights
