package sampling

// RNG is a random number generator whose n-th number depends only on the seed
// and n: SplitMix64 (Steele, Lea and Flood, 2014) over a counter. Because it has
// no other state, its stream can be continued on another machine.
type RNG struct {
	seed uint64
	next uint64 // position
}

// golden is 2⁶⁴ divided by the golden ratio, rounded to an odd number: the
// increment of SplitMix64.
const golden = 0x9e3779b97f4a7c15

// NewRNG returns the generator of a seed, at its first number. It mixes the seed
// first, so that the streams of neighbouring seeds are unrelated.
func NewRNG(seed uint64) RNG { return RNG{seed: mix(seed + golden)} }

// Uint64 returns the next number, of 64 random bits.
func (g *RNG) Uint64() uint64 {
	g.next++
	return mix(g.seed + g.next*golden)
}

// Float64 returns the next number of [0, 1), a multiple of 2⁻⁵³.
func (g *RNG) Float64() float64 { return float64(g.Uint64()>>11) / (1 << 53) }

// mix is SplitMix64's output function.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
