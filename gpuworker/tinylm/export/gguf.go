package export

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
)

// The types of metadata values, as numbered in GGUF's specification.
const (
	ggufUint32  = 4
	ggufInt32   = 5
	ggufFloat32 = 6
	ggufBool    = 7
	ggufString  = 8
	ggufArray   = 9
)

// ggufAlign is the alignment of tensors in bytes, the format's default.
const ggufAlign = 32

// ggufHead builds the part of a GGUF file before the tensors: magic, version,
// counts, metadata in the order in which they are set, and the list of tensors.
// All numbers are little-endian.
type ggufHead struct {
	pairs, tensors   []byte
	pairCount, count uint64
	offset           uint64 // offset of the next tensor from the first
}

func (h *ggufHead) key(name string, kind uint32) {
	h.pairs = ggufText(h.pairs, name)
	h.pairs = binary.LittleEndian.AppendUint32(h.pairs, kind)
	h.pairCount++
}

func (h *ggufHead) text(key, value string) {
	h.key(key, ggufString)
	h.pairs = ggufText(h.pairs, value)
}

func (h *ggufHead) uint32(key string, value uint32) {
	h.key(key, ggufUint32)
	h.pairs = binary.LittleEndian.AppendUint32(h.pairs, value)
}

func (h *ggufHead) float32(key string, value float32) {
	h.key(key, ggufFloat32)
	h.pairs = binary.LittleEndian.AppendUint32(h.pairs, math.Float32bits(value))
}

func (h *ggufHead) bool(key string, value bool) {
	h.key(key, ggufBool)
	b := byte(0)
	if value {
		b = 1
	}
	h.pairs = append(h.pairs, b)
}

func (h *ggufHead) texts(key string, values []string) {
	h.array(key, ggufString, len(values))
	for _, v := range values {
		h.pairs = ggufText(h.pairs, v)
	}
}

func (h *ggufHead) int32s(key string, values []int32) {
	h.array(key, ggufInt32, len(values))
	for _, v := range values {
		h.pairs = binary.LittleEndian.AppendUint32(h.pairs, uint32(v))
	}
}

func (h *ggufHead) array(key string, kind uint32, n int) {
	h.key(key, ggufArray)
	h.pairs = binary.LittleEndian.AppendUint32(h.pairs, kind)
	h.pairs = binary.LittleEndian.AppendUint64(h.pairs, uint64(n))
}

// tensor adds a tensor to the list. GGUF counts dimensions from the innermost
// one, so tensor reverses the shape.
func (h *ggufHead) tensor(name string, shape []int, e Encoding) {
	h.tensors = ggufText(h.tensors, name)
	h.tensors = binary.LittleEndian.AppendUint32(h.tensors, uint32(len(shape)))
	values := 1
	for i := len(shape) - 1; i >= 0; i-- {
		h.tensors = binary.LittleEndian.AppendUint64(h.tensors, uint64(shape[i]))
		values *= shape[i]
	}
	h.tensors = binary.LittleEndian.AppendUint32(h.tensors, e.gguf())
	h.tensors = binary.LittleEndian.AppendUint64(h.tensors, h.offset)
	h.offset += aligned(uint64(e.size(values)), ggufAlign)
	h.count++
}

// write writes the head, followed by zeros up to the alignment of the first
// tensor.
func (h *ggufHead) write(w *bufio.Writer) error {
	start := []byte("GGUF\x03\x00\x00\x00")
	start = binary.LittleEndian.AppendUint64(start, h.count)
	start = binary.LittleEndian.AppendUint64(start, h.pairCount)
	n := 0
	for _, part := range [][]byte{start, h.pairs, h.tensors} {
		n += len(part)
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	return pad(w, n, ggufAlign)
}

// gguf returns the number of the encoding's tensor type in ggml.
func (e Encoding) gguf() uint32 { return [...]uint32{F32: 0, F16: 1, BF16: 30, Q8: 8}[e] }

// ggufFile returns the number of llama.cpp's file type for a file whose matrices
// have this encoding.
func (e Encoding) ggufFile() uint32 { return [...]uint32{F32: 0, F16: 1, BF16: 32, Q8: 7}[e] }

func ggufText(to []byte, s string) []byte {
	to = binary.LittleEndian.AppendUint64(to, uint64(len(s)))
	return append(to, s...)
}

// aligned returns n rounded up to a multiple of to.
func aligned(n, to uint64) uint64 { return (n + to - 1) / to * to }

// pad writes zeros after n bytes up to a multiple of to.
func pad(w io.Writer, n, to int) error {
	_, err := w.Write(make([]byte, int(aligned(uint64(n), uint64(to)))-n))
	return err
}
