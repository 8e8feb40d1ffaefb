package model

import (
	"math"

	"rollout/gpuworker/tinylm/kernel"
)

// rng is SplitMix64 (Steele, Lea, Flood 2014).
type rng struct{ state uint64 }

func (g *rng) next() uint64 {
	g.state += 0x9e3779b97f4a7c15
	z := g.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// uniform is in (0, 1].
func (g *rng) uniform() float64 { return float64(g.next()>>11+1) / (1 << 53) }

// normal fills x with normal values (Box and Muller).
func (g *rng) normal(x []float32, deviation float64) {
	for i := range x {
		radius := math.Sqrt(float64(-2 * kernel.Log64(g.uniform())))
		_, cos := kernel.SinCos64(float64(2 * math.Pi * g.uniform()))
		x[i] = float32(float64(radius*cos) * deviation)
	}
}
