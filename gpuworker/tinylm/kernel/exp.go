package kernel

import "math"

// The constants of Exp. Above expHigh, e^x overflows; below expLow, it rounds to
// zero. Adding magic and subtracting it again rounds to the nearest integer, for
// |x| < 2^22.
const (
	expHigh  = 89
	expLow   = -104
	log2e    = 1.44269504088896341
	ln2High  = 0.693359375 // 9 bits: the product with an exponent is exact
	ln2Low   = -2.12194440e-4
	magic    = 12582912 // 1.5 · 2^23
	expPoly0 = 1.9875691500e-4
	expPoly1 = 1.3981999507e-3
	expPoly2 = 8.3334519073e-3
	expPoly3 = 4.1665795894e-2
	expPoly4 = 1.6666665459e-1
	expPoly5 = 5.0000001201e-1
)

// Exp returns e^x within two units in the last place. The result is infinite
// above 88.73 and underflows gradually to zero at -103.98; NaN gives NaN. The
// method is Cody and Waite's, with the polynomial of Cephes' expf.
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
	// Multiply by 2^k in two steps. The first is exact; the second may round to
	// a subnormal number or overflow.
	half := k >> 1
	p = float32(p * pow2(half))
	return float32(p * pow2(k-half))
}

// magicBits is the bit pattern of magic. The bit pattern of a rounded sum minus
// magicBits is the integer that the sum was rounded to.
const magicBits = 0x4b400000

func pow2(k int32) float32 { return math.Float32frombits(uint32(k+127) << 23) }

// Sigmoid returns 1/(1+e^-x).
func Sigmoid(x float32) float32 { return 1 / (1 + Exp(-x)) }
