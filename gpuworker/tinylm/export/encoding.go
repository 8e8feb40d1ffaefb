package export

import (
	"encoding/binary"
	"math"

	"rollout/shared/fault"
)

// Encoding is the storage format of a matrix's values. Norms, which are short,
// are always stored as float32.
type Encoding uint8

// The supported encodings. All except F32 lose precision.
const (
	F32  Encoding = iota
	F16           // IEEE half precision: values up to 65,504
	BF16          // bfloat16: the upper half of a float32
	Q8            // GGUF's Q8_0: 32 values share a scale; only for GGUF
)

// encodings are the names of encodings on the command line.
var encodings = map[string]Encoding{"f32": F32, "f16": F16, "bf16": BF16, "q8_0": Q8}

// ParseEncoding returns the encoding of that name: f32, f16, bf16 or q8_0. Any
// other name is an Invalid fault.
func ParseEncoding(name string) (Encoding, error) {
	e, ok := encodings[name]
	if !ok {
		return 0, fault.New(fault.Invalid, "unknown encoding %q: use f32, f16, bf16 or q8_0", name)
	}
	return e, nil
}

// String returns the encoding's name, such as "q8_0".
func (e Encoding) String() string {
	for name, v := range encodings {
		if v == e {
			return name
		}
	}
	return "unknown"
}

// block is the number of values of Q8 that share a scale.
const block = 32

// size returns the number of bytes of a row of n values.
func (e Encoding) size(n int) int {
	switch e {
	case F16, BF16:
		return 2 * n
	case Q8:
		return n / block * (2 + block)
	}
	return 4 * n
}

// row appends a row of finite values to to. A value too large for the encoding
// is an Invalid fault.
func (e Encoding) row(to []byte, values []float32) ([]byte, error) {
	switch e {
	case F16:
		for _, v := range values {
			h := half(v)
			if h&0x7fff == 0x7c00 {
				return nil, fault.New(fault.Invalid, "%g is too large for f16: export as bf16 or f32", v)
			}
			to = binary.LittleEndian.AppendUint16(to, h)
		}
	case BF16:
		for _, v := range values {
			b := math.Float32bits(v)
			rounded := b + 0x7fff + b>>16&1 // to nearest, ties to even
			if rounded&0x7f80_0000 == 0x7f80_0000 {
				return nil, fault.New(fault.Invalid, "%g is too large for bf16: export as f32", v)
			}
			to = binary.LittleEndian.AppendUint16(to, uint16(rounded>>16))
		}
	case Q8:
		for ; len(values) >= block; values = values[block:] {
			var err error
			if to, err = quantise(to, values[:block]); err != nil {
				return nil, err
			}
		}
	default:
		for _, v := range values {
			to = binary.LittleEndian.AppendUint32(to, math.Float32bits(v))
		}
	}
	return to, nil
}

// quantise appends a block of Q8_0: the scale in half precision, then the values
// divided by it, rounded half away from zero as in ggml's reference.
func quantise(to []byte, values []float32) ([]byte, error) {
	most := float32(0)
	for _, v := range values {
		most = max(most, float32(math.Abs(float64(v))))
	}
	scale, inverse := most/127, float32(0)
	h := half(scale)
	switch {
	case h == 0x7c00:
		return nil, fault.New(fault.Invalid, "the scale of a block with the value %g is too large for q8_0: "+
			"export as bf16 or f32", most)
	case h != 0: // otherwise all values of the block become 0
		inverse = 1 / scale
	}
	to = binary.LittleEndian.AppendUint16(to, h)
	for _, v := range values {
		to = append(to, byte(int8(math.Round(float64(v*inverse)))))
	}
	return to, nil
}

// half returns v in IEEE half precision, rounded to nearest, ties to even. A
// value that is too large becomes infinity.
func half(v float32) uint16 {
	bits := math.Float32bits(v)
	sign := uint16(bits >> 16 & 0x8000)
	exponent := int(bits>>23&0xff) - 127
	fraction := bits & 0x7f_ffff
	switch {
	case exponent > 15:
		return sign | 0x7c00
	case exponent >= -14: // normal; a carry out of the fraction raises the exponent
		whole := uint32(exponent+15)<<10 | fraction>>13
		return sign + uint16(nearest(whole, fraction&0x1fff, 0x1000))
	case exponent >= -25: // subnormal
		fraction |= 0x80_0000
		shift := uint(-exponent - 1)
		return sign + uint16(nearest(fraction>>shift, fraction&(1<<shift-1), 1<<(shift-1)))
	}
	return sign
}

// nearest returns whole, or whole+1 if rest, the bits cut off, is above middle,
// or is equal to middle and whole is odd.
func nearest(whole, rest, middle uint32) uint32 {
	if rest > middle || rest == middle && whole&1 == 1 {
		return whole + 1
	}
	return whole
}
