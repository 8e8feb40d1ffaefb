package gate

import (
	"encoding/binary"

	"rollout/shared/core/identity"
)

// draws are random numbers made from a seed: the blake3 of purpose ‖ seed ‖ block number,
// both u64 LE, read as u32 LE. They are the same on every machine and in every version of
// Go. It is not safe for concurrent use.
type draws struct {
	hasher identity.Hasher
	header []byte
	blocks uint64
	block  identity.ContentID
	used   int
}

// newDraws returns the random numbers of the seed for a purpose. Numbers for different
// purposes are independent.
func newDraws(purpose string, seed uint64) *draws {
	return &draws{
		header: binary.LittleEndian.AppendUint64([]byte(purpose), seed),
		used:   len(identity.ContentID{}),
	}
}

// bits32 returns 32 random bits.
func (d *draws) bits32() uint32 {
	if d.used == len(d.block) {
		d.hasher.Reset()
		d.hasher.Write(d.header)
		var n [8]byte
		binary.LittleEndian.PutUint64(n[:], d.blocks)
		d.hasher.Write(n[:])
		d.block, d.used = d.hasher.Sum(), 0
		d.blocks++
	}
	v := binary.LittleEndian.Uint32(d.block[d.used:])
	d.used += 4
	return v
}

// index returns a random number from 0 to n−1, for n up to 2^32. No number is more likely
// than another by more than a share of n / 2^32.
func (d *draws) index(n int) int {
	return int(uint64(d.bits32()) * uint64(n) >> 32)
}
