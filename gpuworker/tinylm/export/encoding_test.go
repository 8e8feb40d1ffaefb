package export

import (
	"bytes"
	"encoding/binary"
	"math"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/fault"
)

// halfValue returns the value of a half-precision number, by its definition.
func halfValue(h uint16) float64 {
	sign, exponent, fraction := 1.0, int(h>>10&31), float64(h&0x3ff)
	if h>>15 == 1 {
		sign = -1
	}
	if exponent == 0 {
		return sign * math.Ldexp(fraction, -24)
	}
	return sign * math.Ldexp(1024+fraction, exponent-25)
}

func TestHalfOfEveryHalfValueIsExact(t *testing.T) {
	t.Parallel()
	for h := range uint32(1 << 16) {
		if h>>10&31 == 31 {
			continue // infinity and NaN
		}
		if got := half(float32(halfValue(uint16(h)))); got != uint16(h) {
			t.Fatalf("%#04x is %g, which became %#04x", h, halfValue(uint16(h)), got)
		}
	}
}

func TestHalfRoundsToNearestTiesToEven(t *testing.T) {
	t.Parallel()
	for h := uint16(0); h < 0x7bff; h++ { // the middle between h and h+1, and its two neighbours
		middle := (halfValue(h) + halfValue(h+1)) / 2
		even := h + h&1
		for _, c := range []struct {
			v    float32
			want uint16
		}{
			{float32(middle), even},
			{math.Nextafter32(float32(middle), 0), h},
			{math.Nextafter32(float32(middle), 1e9), h + 1},
		} {
			if got := half(c.v); got != c.want {
				t.Fatalf("%g became %#04x, want %#04x", c.v, got, c.want)
			}
			if got := half(-c.v); got != c.want|0x8000 {
				t.Fatalf("-%g became %#04x, want %#04x", c.v, got, c.want|0x8000)
			}
		}
	}
}

func TestRowsOfEachEncoding(t *testing.T) {
	t.Parallel()
	values := make([]float32, 32)
	// 1.00390625 is 1 + 2⁻⁸: halfway between two bfloat16, and exact in half precision.
	values[0], values[1], values[2], values[3] = 1, -2, 0.5, 1.00390625
	for _, c := range []struct {
		e    Encoding
		want []byte
	}{
		{F32, []byte{0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 0, 0, 0, 0x3f, 0, 0x80, 0x80, 0x3f}},
		{F16, []byte{0, 0x3c, 0, 0xc0, 0, 0x38, 4, 0x3c}},
		{BF16, []byte{0x80, 0x3f, 0, 0xc0, 0, 0x3f, 0x80, 0x3f}},
		{Q8, []byte{0x08, 0x24, 64, 0x81, 32, 64}}, // scale 2/127 as a half; 63.5 rounds to 64, 31.75 to 32
	} {
		got, err := c.e.row(nil, values)
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != c.e.size(32) {
			t.Errorf("%s: %d bytes, want %d as by size", c.e, len(got), c.e.size(32))
		}
		if !bytes.HasPrefix(got, c.want) {
			t.Errorf("%s: % x, want % x", c.e, got[:len(c.want)], c.want)
		}
	}
}

func TestQ8ValuesAreWithinHalfAStep(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float32Range(-100, 100), block, block).Draw(t, "values")
		got, err := Q8.row(nil, values)
		if err != nil {
			t.Fatal(err)
		}
		scale := halfValue(binary.LittleEndian.Uint16(got))
		for i, v := range values {
			// Half a step, plus the rounding error of the scale times up to 127 steps.
			if off := math.Abs(float64(v) - scale*float64(int8(got[2+i]))); off > scale*0.57+1e-5 {
				t.Fatalf("%g has an error of %g, with a step of %g", v, off, scale)
			}
		}
	})
}

func TestEncodingsRefuseValuesTooLarge(t *testing.T) {
	t.Parallel()
	large := make([]float32, block)
	large[5] = 70_000
	if _, err := F16.row(nil, large); !fault.Is(err, fault.Invalid) {
		t.Errorf("f16 of 70,000: %v", err)
	}
	large[5] = -3.4e38
	for _, e := range []Encoding{BF16, Q8} {
		if _, err := e.row(nil, large); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s of -3.4e38: %v", e, err)
		}
	}
	tiny := make([]float32, block)
	tiny[0] = math.SmallestNonzeroFloat32
	if b, err := Q8.row(nil, tiny); err != nil || !bytes.Equal(b, make([]byte, 34)) {
		t.Errorf("a block too small for a scale: % x, %v; want zeros", b, err)
	}
}

func TestParseEncodingReadsEveryName(t *testing.T) {
	t.Parallel()
	for _, e := range []Encoding{F32, F16, BF16, Q8} {
		if got, err := ParseEncoding(e.String()); err != nil || got != e {
			t.Errorf("%s is read as %v, %v", e, got, err)
		}
	}
	if _, err := ParseEncoding("q4"); !fault.Is(err, fault.Invalid) {
		t.Errorf("q4: %v", err)
	}
}
