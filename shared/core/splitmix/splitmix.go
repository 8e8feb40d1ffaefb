// Package splitmix draws random numbers that are the same on every machine and in every
// version of Go.
package splitmix

// Draws are the random numbers of SplitMix64 (Steele, Lea and Flood, Fast Splittable
// Pseudorandom Number Generators, 2014). The zero value has the seed 0. It is not safe for
// concurrent use.
type Draws struct{ state uint64 }

// New returns the random numbers of the seed.
func New(seed uint64) *Draws { return &Draws{seed} }

// Index returns a random number from 0 to n−1, for n up to 2^31.
func (d *Draws) Index(n int) int {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return int((z ^ z>>31) >> 32 * uint64(n) >> 32)
}
