package export

import (
	"encoding/binary"
	"math"

	"rollout/shared/fault"
)

// Encoding is how a matrix's numbers are stored. Norms, which are short, are
// always float32.
type Encoding uint8

// The encodings. All but F32 lose precision.
const (
	F32  Encoding = iota
	F16           // IEEE half precision: values up to 65,504
	BF16          // the upper half of a float32
	Q8            // GGUF's Q8_0: 32 values share a scale; GGUF only
)

// encodings are their names on a command line.
var encodings = map[string]Encoding{"f32": F32, "f16": F16, "bf16": BF16, "q8_0": Q8}

// ParseEncoding reads an encoding's name: f32, f16, bf16 or q8_0.
func ParseEncoding(name string) (Encoding, error) {
	e, ok := encodings[name]
	if !ok {
		return 0, fault.New(fault.Invalid, "there is no encoding %q: take f32, f16, bf16 or q8_0", name)
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

// block is how many values of Q8 share a scale.
const block = 32

// size is how many bytes a row of n values takes.
func (e Encoding) size(n int) int {
	switch e {
	case F16, BF16:
		return 2 * n
	case Q8:
		return n / block * (2 + block)
	}
	return 4 * n
}

// row appends one row, already checked to be finite.
func (e Encoding) row(to []byte, values []float32) ([]byte, error) {
	switch e {
	case F16:
		for _, v := range values {
			h := half(v)
			if h&0x7fff == 0x7c00 {
				return nil, fault.New(fault.Invalid, "%g is more than f16 holds: export as bf16 or f32", v)
			}
			to = binary.LittleEndian.AppendUint16(to, h)
		}
	case BF16:
		for _, v := range values {
			b := math.Float32bits(v)
			rounded := b + 0x7fff + b>>16&1 // to nearest, ties to even
			if rounded&0x7f80_0000 == 0x7f80_0000 {
				return nil, fault.New(fault.Invalid, "%g is more than bf16 holds: export as f32", v)
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

// quantise appends a block of Q8_0: the scale as a half, and the values in
// units of it, rounded half away from zero, as ggml's reference does.
func quantise(to []byte, values []float32) ([]byte, error) {
	most := float32(0)
	for _, v := range values {
		most = max(most, float32(math.Abs(float64(v))))
	}
	scale, inverse := most/127, float32(0)
	h := half(scale)
	switch {
	case h == 0x7c00:
		return nil, fault.New(fault.Invalid, "a block whose greatest value is %g has no scale that q8_0 holds: export as bf16 or f32", most)
	case h != 0: // otherwise the values are too small to be told from 0
		inverse = 1 / scale
	}
	to = binary.LittleEndian.AppendUint16(to, h)
	for _, v := range values {
		to = append(to, byte(int8(math.Round(float64(v*inverse)))))
	}
	return to, nil
}

// half rounds to IEEE half precision, to nearest, ties to even; what is too
// large becomes infinity.
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

// nearest rounds up if what was cut off is more than the middle, or is the
// middle and the whole is odd.
func nearest(whole, rest, middle uint32) uint32 {
	if rest > middle || rest == middle && whole&1 == 1 {
		return whole + 1
	}
	return whole
}
