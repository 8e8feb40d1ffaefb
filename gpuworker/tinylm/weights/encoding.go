package weights

import (
	"encoding/binary"
	"math"
)

// Encoding is the storage format of numbers; its value is its name in
// safetensors.
type Encoding string

// The supported encodings. Tensors that are not matrices, such as gains, are
// always stored as F32.
const (
	F32  Encoding = "F32"
	BF16 Encoding = "BF16" // the upper half of an F32, rounded to nearest, ties to even
	I8   Encoding = "I8"   // -127 to 127, times the factor of the row
)

// size returns the number of bytes of one number, or 0 for an unknown encoding.
func (e Encoding) size() int {
	switch e {
	case F32:
		return 4
	case BF16:
		return 2
	case I8:
		return 1
	}
	return 0
}

// scaleOf returns the name of the tensor with the row factors of an I8 tensor.
func scaleOf(name string) string { return name + ".scale" }

// appendF32 appends numbers as F32.
func appendF32(b []byte, data []float32) []byte {
	for _, v := range data {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// appendBF16 appends numbers as BF16, rounded to nearest, ties to even.
func appendBF16(b []byte, data []float32) []byte {
	for _, v := range data {
		bits := math.Float32bits(v)
		bits += 0x7fff + bits>>16&1
		b = binary.LittleEndian.AppendUint16(b, uint16(bits>>16))
	}
	return b
}

// quantise returns numbers as I8, and a factor for each row of row numbers. The
// largest absolute value of a row is 127 times its factor.
func quantise(data []float32, row int) (numbers []byte, scales []float32) {
	for at := 0; at < len(data); at += row {
		values := data[at : at+row]
		var most float32
		for _, v := range values {
			most = max(most, abs(v))
		}
		scale := most / 127
		scales = append(scales, scale)
		for _, v := range values {
			n := 0.0
			if scale > 0 {
				n = math.RoundToEven(float64(v) / float64(scale))
			}
			numbers = append(numbers, byte(int8(max(-127, min(127, n)))))
		}
	}
	return numbers, scales
}

func abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

// decode returns stored numbers without applying factors.
func decode(e Encoding, b []byte) []float32 {
	out := make([]float32, len(b)/e.size())
	for i := range out {
		switch e {
		case F32:
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		case BF16:
			out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
		case I8:
			out[i] = float32(int8(b[i]))
		}
	}
	return out
}

// multiply multiplies each row by its factor.
func multiply(data, scales []float32) {
	row := len(data) / len(scales)
	for i := range data {
		data[i] *= scales[i/row]
	}
}
