package sampling

// RNG is a stream of numbers that depends on seed and position alone:
// splitmix64 (Steele, Lea and Flood, 2014) over a counter. It keeps no other
// state, so that a stream goes on anywhere.
type RNG struct {
	seed uint64
	next uint64 // position
}

// golden is 2⁶⁴ divided by the golden ratio, odd: splitmix64's step.
const golden = 0x9e3779b97f4a7c15

// NewRNG returns the seed's stream, from its first number. Seeds are
// mixed first: streams of neighbouring seeds have nothing in common.
func NewRNG(seed uint64) RNG { return RNG{seed: mix(seed + golden)} }

// Uint64 returns the next 64 bits.
func (g *RNG) Uint64() uint64 {
	g.next++
	return mix(g.seed + g.next*golden)
}

// Float64 returns the next number of [0, 1), a multiple of 2⁻⁵³.
func (g *RNG) Float64() float64 { return float64(g.Uint64()>>11) / (1 << 53) }

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
