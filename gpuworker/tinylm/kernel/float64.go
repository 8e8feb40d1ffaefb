package kernel

import "math"

// The functions of this file serve tables, losses and schedules. They are
// correct to a few units in the last place of a float64, and give the same bits
// on every machine.

// ln 2 is the sum of these two parts. The first has enough trailing zeros that
// its product with an exponent is exact.
const (
	ln2Hi64 = 6.93147180369123816490e-01
	ln2Lo64 = 1.90821492927058770002e-10
)

// Exp64 returns e^x. The reduced argument is at most ln2/2, so that a Taylor
// polynomial of degree 13 is accurate to 2^-56.
func Exp64(x float64) float64 {
	switch {
	case math.IsNaN(x):
		return x
	case x > 709.8:
		return math.Inf(1)
	case x < -745.2:
		return 0
	}
	n := math.Floor(float64(x*math.Log2E) + 0.5)
	r := x - float64(n*ln2Hi64)
	r -= float64(n * ln2Lo64)
	p := 1.0
	for i := 13; i > 0; i-- {
		p = 1 + float64(float64(r*p)/float64(i))
	}
	return math.Ldexp(p, int(n))
}

// Log64 returns the natural logarithm of x: NaN if x is negative, minus infinity
// if x is zero. With x = 2^k·m and m in [√½, √2), the result is
// k·ln2 + 2·artanh((m-1)/(m+1)).
func Log64(x float64) float64 {
	switch {
	case math.IsNaN(x) || x < 0:
		return math.NaN()
	case x == 0:
		return math.Inf(-1)
	case math.IsInf(x, 1):
		return x
	}
	m, k := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, k = m*2, k-1
	}
	f := (m - 1) / (m + 1)
	f2 := float64(f * f)
	p := 0.0
	for i := 21; i > 1; i -= 2 {
		p = float64(f2 * (p + 1/float64(i)))
	}
	log := float64(2*f) + float64(float64(2*f)*p)
	n := float64(k)
	return float64(n*ln2Hi64) + (float64(n*ln2Lo64) + log)
}

// Pow64 returns base^x for a positive base.
func Pow64(base, x float64) float64 { return Exp64(float64(x * Log64(base))) }

// π/2 is the sum of these three parts. The first two end in zero bits, so that
// their products with small integers are exact.
const (
	halfPi1 = 1.57079632673412561417e+00
	halfPi2 = 6.07710050630396597660e-11
	halfPi3 = 2.02226624879595063154e-21
)

// SinCos64 returns the sine and the cosine of x radians, for |x| < 10^6.
func SinCos64(x float64) (sin, cos float64) {
	n := math.Floor(float64(x*(2/math.Pi)) + 0.5)
	r := x - float64(n*halfPi1)
	r -= float64(n * halfPi2)
	r -= float64(n * halfPi3)
	r2 := float64(r * r)
	s, c := 1.0, 1.0
	for i := 18; i > 0; i -= 2 {
		s = 1 - float64(float64(r2*s)/float64(i*(i+1)))
		c = 1 - float64(float64(r2*c)/float64(i*(i-1)))
	}
	s = float64(r * s)
	switch int64(n) & 3 {
	case 0:
		return s, c
	case 1:
		return c, -s
	case 2:
		return -s, -c
	default:
		return -c, s
	}
}
