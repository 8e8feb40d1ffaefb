package wire

import (
	"encoding/binary"
	"math"

	"rollout/shared/fault"
)

// DType is the type of a tensor's elements.
type DType string

// The types that can be sent.
const (
	BF16  DType = "bf16"
	Int64 DType = "int64"
	UInt8 DType = "uint8"
)

// Size returns the bytes of an element; 0 for a type that can't be sent.
func (d DType) Size() int {
	switch d {
	case BF16:
		return 2
	case Int64:
		return 8
	case UInt8:
		return 1
	}
	return 0
}

// Bounds of a message.
const (
	MaxTensors     = 8
	MaxDimensions  = 8
	MaxTensorBytes = 256 << 20
	maxMetadata    = 64 << 10
	maxSpecs       = 16 << 10
)

// Spec describes a tensor.
type Spec struct {
	Key   string `json:"key"`
	DType DType  `json:"dtype"`
	Shape []int  `json:"shape"`
}

// Bytes returns the size of the tensor's data. It is Invalid if the type can't be sent, the
// shape has a negative or too many dimensions, or the tensor is too large.
func (s Spec) Bytes() (int, error) {
	size := s.DType.Size()
	if size == 0 {
		return 0, fault.New(fault.Invalid, "tensor %.40q: the type %.40q can't be sent: use %s, %s or %s",
			s.Key, string(s.DType), BF16, Int64, UInt8)
	}
	if len(s.Shape) == 0 || len(s.Shape) > MaxDimensions {
		return 0, fault.New(fault.Invalid, "tensor %.40q has %d dimensions: 1 to %d can be sent",
			s.Key, len(s.Shape), MaxDimensions)
	}
	for _, n := range s.Shape {
		if n < 0 || n > MaxTensorBytes || (n > 0 && size > MaxTensorBytes/n) {
			return 0, fault.New(fault.Invalid, "tensor %.40q has the shape %v: dimensions must not be negative, "+
				"and the data have at most %d bytes", s.Key, s.Shape, MaxTensorBytes)
		}
		size *= n
	}
	return size, nil
}

// Tensor is an array in row-major order, little endian, without gaps.
type Tensor struct {
	Spec
	Data []byte
}

// Int64s returns a tensor of one dimension.
func Int64s(key string, x []int64) Tensor {
	data := make([]byte, 0, 8*len(x))
	for _, v := range x {
		data = binary.LittleEndian.AppendUint64(data, uint64(v))
	}
	return Tensor{Spec{key, Int64, []int{len(x)}}, data}
}

// Int64s returns the elements of a tensor of that type.
func (t Tensor) Int64s() []int64 {
	out := make([]int64, len(t.Data)/8)
	for i := range out {
		out[i] = int64(binary.LittleEndian.Uint64(t.Data[8*i:]))
	}
	return out
}

// BF16s returns a tensor of values rounded to BF16, to the nearest and ties to even.
func BF16s(key string, x []float32, shape ...int) Tensor {
	data := make([]byte, 0, 2*len(x))
	for _, v := range x {
		data = binary.LittleEndian.AppendUint16(data, toBF16(v))
	}
	return Tensor{Spec{key, BF16, shape}, data}
}

func toBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v {
		return uint16(bits>>16) | 1<<6 // stays a NaN
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Float32s returns the elements of a BF16 tensor.
func (t Tensor) Float32s() []float32 {
	out := make([]float32, len(t.Data)/2)
	for i := range out {
		out[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(t.Data[2*i:])) << 16)
	}
	return out
}

// notFinite returns the index of the first BF16 element that is infinite or no number, or -1.
func (t Tensor) notFinite() int {
	// Four at once: an exponent of all ones, plus one, carries into the sign's place.
	const exponents, ones, signs = 0x7f80_7f80_7f80_7f80, 0x0080_0080_0080_0080, 0x8000_8000_8000_8000
	i := 0
	for ; i+8 <= len(t.Data); i += 8 {
		if (binary.LittleEndian.Uint64(t.Data[i:])&exponents+ones)&signs != 0 {
			break
		}
	}
	for ; i+1 < len(t.Data); i += 2 {
		if binary.LittleEndian.Uint16(t.Data[i:])&0x7f80 == 0x7f80 {
			return i / 2
		}
	}
	return -1
}
