package dataset

import (
	"encoding/binary"
	"math/bits"

	"lukechampine.com/blake3"
)

// Order is the order in which the rows of a dataset are taken: each epoch has
// one of its own, in which every row comes once. It is a pure function of Seed
// and Rows, and takes no memory: a dataset may have more rows than would fit.
type Order struct {
	Seed uint64
	Rows uint64 // not 0
}

// rounds of the permutation's network: four are those of Luby and Rackoff's
// proof, two more are for halves of few bits.
const rounds = 6

// At returns the row that comes at a position, from 0, counted over all
// epochs.
//
// It is a Feistel network over the smallest even number of bits that holds
// every row, keyed by seed and epoch, applied again while its result is no row
// (cycle walking; Black and Rogaway 2002). Most are rows: the domain has less
// than four times as many elements.
func (o Order) At(position uint64) uint64 {
	epoch, i := position/o.Rows, position%o.Rows
	half := max(1, (bits.Len64(o.Rows-1)+1)/2)
	for {
		if i = o.permute(epoch, i, half); i < o.Rows {
			return i
		}
	}
}

func (o Order) permute(epoch, x uint64, half int) uint64 {
	mask := uint64(1)<<half - 1
	left, right := x>>half, x&mask
	var key [8 * 4]byte
	binary.LittleEndian.PutUint64(key[0:], o.Seed)
	binary.LittleEndian.PutUint64(key[8:], epoch)
	for round := range uint64(rounds) {
		binary.LittleEndian.PutUint64(key[16:], round)
		binary.LittleEndian.PutUint64(key[24:], right)
		sum := blake3.Sum256(key[:])
		left, right = right, left^(binary.LittleEndian.Uint64(sum[:])&mask)
	}
	return left<<half | right
}
