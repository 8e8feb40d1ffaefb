package kernel

import "math"

// The limits and parts of Exp. expHigh and expLow are just beyond where e^x
// overflows and where it rounds to zero; magic rounds to the nearest integer
// when it is added and taken away again (|x| < 2^22).
const (
	expHigh  = 89
	expLow   = -104
	log2e    = 1.44269504088896341
	ln2High  = 0.693359375 // 9 bits: times an exponent it is exact
	ln2Low   = -2.12194440e-4
	magic    = 12582912 // 1.5 · 2^23
	expPoly0 = 1.9875691500e-4
	expPoly1 = 1.3981999507e-3
	expPoly2 = 8.3334519073e-3
	expPoly3 = 4.1665795894e-2
	expPoly4 = 1.6666665459e-1
	expPoly5 = 5.0000001201e-1
)

// Exp is e^x within two units in the last place, infinite above 88.73, with
// gradual underflow to zero at -103.98; NaN stays NaN. The method is that of
// Cody and Waite with the polynomial of Cephes' expf.
func Exp(x float32) float32 {
	if x > expHigh {
		x = expHigh
	}
	if x < expLow {
		x = expLow
	}
	n := float32(x*log2e) + magic
	k := int32(math.Float32bits(n)) - magicBits
	n -= magic
	r := x - float32(n*ln2High)
	r -= float32(n * ln2Low)
	p := float32(expPoly0)
	p = float32(p*r) + expPoly1
	p = float32(p*r) + expPoly2
	p = float32(p*r) + expPoly3
	p = float32(p*r) + expPoly4
	p = float32(p*r) + expPoly5
	p = float32(p*float32(r*r)) + r + 1
	// 2^k in two exact steps, of which the last may round into the subnormals
	// or overflow.
	half := k >> 1
	p = float32(p * pow2(half))
	return float32(p * pow2(k-half))
}

// magicBits is magic's own bit pattern: the difference of patterns is the
// integer that was rounded to.
const magicBits = 0x4b400000

func pow2(k int32) float32 { return math.Float32frombits(uint32(k+127) << 23) }

// Sigmoid is 1/(1+e^-x).
func Sigmoid(x float32) float32 { return 1 / (1 + Exp(-x)) }
