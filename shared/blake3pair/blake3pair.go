// Package blake3pair computes the blake3 hash of short values with vectors.
//
// The library lukechampine.com/blake3 uses vectors only for many chunks at
// once, and compresses the blocks of a short value one at a time. This package
// compresses two nodes of blake3's tree side by side, which takes no longer
// than one of them. Most values that rollout hashes are that short: the request
// and the answer of every item.
//
// The assembly needs AVX2. Available reports whether this processor has it; a
// caller uses the library otherwise, and for values of more than MaxLen bytes.
package blake3pair

import (
	"encoding/binary"
	"unsafe"

	"lukechampine.com/blake3/guts"
)

const (
	// MaxLen is the longest value that Hasher takes, in bytes: on longer ones the
	// library's vectors of 8 or 16 chunks are faster.
	MaxLen = maxChunks * guts.ChunkSize

	maxChunks   = 4
	chunkBlocks = guts.ChunkSize / guts.BlockSize
)

// Available reports whether this processor can run Hasher.Sum.
func Available() bool { return available }

var available = hasAVX2()

// Hasher holds the working memory of Sum, so that hashing allocates nothing.
// The zero value is ready. It is not safe for concurrent use.
type Hasher struct {
	pair  pair
	nodes [maxChunks][8]uint32 // chaining values of the chunks, later of their parents
}

// Sum returns the blake3-256 of the first n bytes of buf. It overwrites up to
// 63 bytes of buf behind them with zeros. It panics unless Available.
func (h *Hasher) Sum(buf *[MaxLen]byte, n int) [32]byte {
	chunks := max(1, (n+guts.ChunkSize-1)/guts.ChunkSize)
	size := n - (chunks-1)*guts.ChunkSize // of the last chunk
	blocks := max(1, (size+guts.BlockSize-1)/guts.BlockSize)
	size -= (blocks - 1) * guts.BlockSize // of its last block, which zeros fill up
	clear(buf[n : n+guts.BlockSize-size])

	p := &h.pair
	end := tail{size: guts.BlockSize ^ uint32(size), flags: guts.FlagChunkEnd}
	if chunks == 1 {
		p.start(0, unsafe.Pointer(buf), 0, guts.FlagChunkStart)
		p.blocks[1] = p.blocks[0]
		p.last[0] = end
		p.last[0].flags |= guts.FlagRoot
		compressPair(p, blocks)
		return p.sum()
	}
	h.hashChunks(buf, chunks, blocks, end)
	return h.hashParents(chunks)
}

// hashChunks stores the chaining values of all chunks in nodes. The last chunk
// has so many blocks, and end is how the tail of its last block differs.
func (h *Hasher) hashChunks(buf *[MaxLen]byte, chunks, blocks int, end tail) {
	p := &h.pair
	for i := 0; i < chunks; i += 2 {
		p.start(0, unsafe.Pointer(&buf[i*guts.ChunkSize]), uint64(i), guts.FlagChunkStart)
		if i+1 == chunks { // the last chunk has no neighbour
			p.blocks[1] = p.blocks[0]
			p.last[0] = end
			compressPair(p, blocks)
			h.nodes[i] = p.value(0)
			break
		}
		p.start(1, unsafe.Pointer(&buf[(i+1)*guts.ChunkSize]), uint64(i+1), guts.FlagChunkStart)
		both := chunkBlocks // the blocks that both chunks have
		p.last = [2]tail{{flags: guts.FlagChunkEnd}, {flags: guts.FlagChunkEnd}}
		if i+2 == chunks {
			both, p.last[1] = blocks, end
		}
		if both < chunkBlocks {
			p.last[0] = tail{}
		}
		compressPair(p, both)
		h.nodes[i+1] = p.value(1)
		if both < chunkBlocks { // the first chunk has more
			p.blocks[0] = unsafe.Add(p.blocks[0], both*guts.BlockSize)
			p.blocks[1] = p.blocks[0]
			p.tail[0].flags = 0
			p.last[0] = tail{flags: guts.FlagChunkEnd}
			compressPair(p, chunkBlocks-both)
		}
		h.nodes[i] = p.value(0)
	}
}

// hashParents joins the nodes of 2 to 4 chunks to the root, and returns its
// value.
func (h *Hasher) hashParents(chunks int) [32]byte {
	p, nodes := &h.pair, &h.nodes
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
	return p.sum()
}

// pair is two nodes of blake3's tree, chunks or parents, that are compressed
// side by side. With only one node to compress, the second may be anything.
//
// The assembly depends on the order of the fields.
type pair struct {
	low, high [2][4]uint32 // the nodes' chaining values: words 0 to 3, and 4 to 7
	tail      [2]tail      // of their blocks
	last      [2]tail      // how the tail of a call's last block differs (exclusive or)
	blocks    [2]unsafe.Pointer
}

// tail is the fourth row of a block's state, which stands beside the chaining
// value.
type tail struct {
	counter     uint64
	size, flags uint32
}

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

// sum returns the first node's chaining value as bytes: the hash, if that node
// is the root.
func (p *pair) sum() (s [32]byte) {
	for i, w := range p.value(0) {
		binary.LittleEndian.PutUint32(s[4*i:], w)
	}
	return s
}
