package dataset

import (
	"encoding/binary"
	"math/bits"

	"lukechampine.com/blake3"
)

// Order is a random order of the rows of a dataset. Every row occurs once in each
// epoch, and each epoch has its own order. The order depends only on Seed and Rows,
// and needs no memory, so that the number of rows is unlimited.
type Order struct {
	Seed uint64
	Rows uint64 // at least 1
}

// rounds is the number of rounds of the Feistel network. Luby and Rackoff's proof
// needs four; two more compensate for halves of few bits.
const rounds = 6

// At returns the row at a position. Positions count from 0 over all epochs.
//
// At uses a Feistel network, keyed by seed and epoch, over the smallest even number
// of bits that can represent every row. It applies the network again while the
// result is not a row (cycle walking; Black and Rogaway 2002). The domain has less
// than four times as many elements as there are rows, so few repetitions are
// needed.
func (o Order) At(position uint64) uint64 {
	epoch, i := position/o.Rows, position%o.Rows
	half := max(1, (bits.Len64(o.Rows-1)+1)/2)
	for {
		if i = o.permute(epoch, i, half); i < o.Rows {
			return i
		}
	}
}

// permute applies the Feistel network once. half is the number of bits of a half.
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
