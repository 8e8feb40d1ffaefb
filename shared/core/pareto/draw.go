package pareto

import (
	"encoding/binary"
	"math/bits"

	"rollout/shared/core/identity"
)

// Draw returns one of the members at random, with a probability in proportion to the
// tickets that it is best on. The seed alone decides: as blake3 of a purpose and the seed,
// u64 LE, of which the first 8 bytes, LE, are scaled to the sum. There must be a member.
func Draw(members []Kept, seed uint64) Kept {
	sum := uint64(0)
	for _, m := range members {
		sum += uint64(m.Best)
	}
	hash := identity.Content(binary.LittleEndian.AppendUint64([]byte("rollout pareto draw"), seed))
	at, _ := bits.Mul64(binary.LittleEndian.Uint64(hash[:8]), sum)
	for _, m := range members[:len(members)-1] {
		if at < uint64(m.Best) {
			return m
		}
		at -= uint64(m.Best)
	}
	return members[len(members)-1]
}
