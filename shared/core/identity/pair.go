package identity

import (
	"encoding/binary"
	"unsafe"

	"lukechampine.com/blake3/guts"
)

// pair is two nodes of blake3's tree, chunks or parents, that are compressed
// side by side, which takes no longer than one of them. Where there is only
// one, the second may be anything.
//
// The assembly knows the order of the fields.
type pair struct {
	low, high [2][4]uint32 // the nodes' chaining values: words 0 to 3, and 4 to 7
	tail      [2]tail      // of their blocks
	last      [2]tail      // what is other (by exclusive or) in the last block of a call
	blocks    [2]unsafe.Pointer
}

// tail is what a block's state has beside the chaining value: its fourth row.
type tail struct {
	counter     uint64
	size, flags uint32
}

// chunkBlocks is how many blocks a whole chunk has.
const chunkBlocks = guts.ChunkSize / guts.BlockSize

// start makes the first or the second of the pair the node that begins at
// block, with that counter and flags.
func (p *pair) start(which int, block unsafe.Pointer, counter uint64, flags uint32) {
	p.low[which], p.high[which] = [4]uint32(guts.IV[:4]), [4]uint32(guts.IV[4:])
	p.tail[which] = tail{counter: counter, size: guts.BlockSize, flags: flags}
	p.last[which] = tail{}
	p.blocks[which] = block
}

// value returns a node's chaining value.
func (p *pair) value(which int) (v [8]uint32) {
	copy(v[:4], p.low[which][:])
	copy(v[4:], p.high[which][:])
	return v
}

// id returns the first node's chaining value, that of a root.
func (p *pair) id() (c ContentID) {
	for i, w := range p.value(0) {
		binary.LittleEndian.PutUint32(c[4*i:], w)
	}
	return c
}

// maxPaired is how long a value may be to be hashed in pairs: the library's
// vectors of 8 or 16 chunks are faster on more.
const maxPaired = 4 * guts.ChunkSize

// paired says whether this processor hashes in pairs.
var paired = havePairs()

// sumPaired is Sum of a value of at most maxPaired bytes.
//
// The library compresses a block of these at a time without vectors, and they
// are what there is most of: every item's request and answer.
func (h *Hasher) sumPaired() ContentID {
	chunks := max(1, (h.n+guts.ChunkSize-1)/guts.ChunkSize)
	size := h.n - (chunks-1)*guts.ChunkSize // of the last chunk
	blocks := max(1, (size+guts.BlockSize-1)/guts.BlockSize)
	size -= (blocks - 1) * guts.BlockSize // of its last block, which zeros fill up
	clear(h.group[h.n : h.n+guts.BlockSize-size])

	p := &h.pair
	end := tail{size: guts.BlockSize ^ uint32(size), flags: guts.FlagChunkEnd}
	if chunks == 1 {
		p.start(0, unsafe.Pointer(&h.group), 0, guts.FlagChunkStart)
		p.blocks[1] = p.blocks[0]
		p.last[0] = end
		p.last[0].flags |= guts.FlagRoot
		compressPair(p, blocks)
		return p.id()
	}

	nodes := h.stack[:maxPaired/guts.ChunkSize] // there are no groups that need it
	for i := 0; i < chunks; i += 2 {
		p.start(0, unsafe.Pointer(&h.group[i*guts.ChunkSize]), uint64(i), guts.FlagChunkStart)
		if i+1 == chunks { // the last one is alone
			p.blocks[1] = p.blocks[0]
			p.last[0] = end
			compressPair(p, blocks)
			nodes[i] = p.value(0)
			break
		}
		p.start(1, unsafe.Pointer(&h.group[(i+1)*guts.ChunkSize]), uint64(i+1), guts.FlagChunkStart)
		both := chunkBlocks
		p.last = [2]tail{{flags: guts.FlagChunkEnd}, {flags: guts.FlagChunkEnd}}
		if i+2 == chunks {
			both, p.last[1] = blocks, end
		}
		if both < chunkBlocks {
			p.last[0] = tail{}
		}
		compressPair(p, both)
		nodes[i+1] = p.value(1)
		if both < chunkBlocks { // the first has more
			p.blocks[0] = unsafe.Add(p.blocks[0], both*guts.BlockSize)
			p.blocks[1] = p.blocks[0]
			p.tail[0].flags = 0
			p.last[0] = tail{flags: guts.FlagChunkEnd}
			compressPair(p, chunkBlocks-both)
		}
		nodes[i] = p.value(0)
	}
	if chunks > 2 {
		p.start(0, unsafe.Pointer(&nodes[0]), 0, guts.FlagParent)
		p.start(1, unsafe.Pointer(&nodes[2]), 0, guts.FlagParent)
		compressPair(p, 1)
		nodes[0], nodes[1] = p.value(0), nodes[2]
		if chunks == 4 {
			nodes[1] = p.value(1)
		}
	}
	p.start(0, unsafe.Pointer(&nodes[0]), 0, guts.FlagParent|guts.FlagRoot)
	p.blocks[1] = p.blocks[0]
	compressPair(p, 1)
	return p.id()
}
