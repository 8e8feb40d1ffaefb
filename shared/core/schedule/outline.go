package schedule

import (
	"math/bits"
	"slices"
)

// An Outline says which pages may hold shards of a lane, so that a search jumps over
// all others: the next shard of a chain may be a hundred thousand shards away. It
// names now and then a page that has none, and never leaves out one that has. It takes
// 4 bytes a shard. The zero value knows no page. An Outline is immutable.
//
//	          page  0 1 2 3 4 5 … 63
//	bucket 0        1 0 0 1 0 0 …      a page sets its bit in the four buckets of each
//	bucket 1        0 0 1 0 0 0 …      of its lanes; a lane may be where all four of its
//	…                                  buckets have a bit
type Outline struct{ blocks []*block }

// block describes blockPages pages; bit p of a word belongs to its page p.
type block struct {
	known   uint64 // the pages that are described
	buckets [buckets]uint64
}

const (
	blockPages = 64
	buckets    = 1 << 13
)

// bucketsOf returns the four buckets of a lane.
func bucketsOf(l lane) (b [4]uint16) {
	h := uint64(l.variant)<<32 | uint64(l.chain)
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9 // the finalizer of SplitMix64
	h = (h ^ h>>27) * 0x94d049bb133111eb
	h ^= h >> 31
	for i := range b {
		b[i] = uint16(h>>(16*i)) % buckets
	}
	return b
}

// With returns an Outline that knows these pages too, and has at most blocks blocks
// of 64 pages each: it forgets those of the first shards before others. Pages with
// less than PageShards shards are left out, because they may grow.
func (o Outline) With(pages []Page, blocks int) Outline {
	out := Outline{slices.Clone(o.blocks)}
	fresh := map[int]*block{}
	for _, p := range pages {
		k := p.First / PageShards / blockPages
		if len(p.Rows) < PageShards || k < len(o.blocks) && o.blocks[k].knows(p) {
			continue
		}
		if fresh[k] == nil {
			for len(out.blocks) <= k {
				out.blocks = append(out.blocks, nil)
			}
			fresh[k] = &block{}
			if old := out.blocks[k]; old != nil {
				*fresh[k] = *old
			}
			out.blocks[k] = fresh[k]
		}
		fresh[k].add(p)
	}
	for i, extra := 0, out.Blocks()-blocks; extra > 0; i++ {
		if out.blocks[i] != nil {
			out.blocks[i] = nil
			extra--
		}
	}
	return out
}

// knows reports whether the page is described.
func (b *block) knows(p Page) bool {
	return b != nil && b.known&(1<<(p.First/PageShards%blockPages)) != 0
}

// Blocks returns how many blocks the outline has, of 64 KiB each.
func (o Outline) Blocks() (n int) {
	for _, b := range o.blocks {
		if b != nil {
			n++
		}
	}
	return n
}

// add describes a page.
func (b *block) add(p Page) {
	bit := uint64(1) << (p.First / PageShards % blockPages)
	b.known |= bit
	var last lane
	for i, a := range p.Rows {
		l := lane{a.Variant, a.Chain}
		if i > 0 && l == last {
			continue
		}
		last = l
		for _, l := range [...]lane{l, {a.Variant, 0}} {
			for _, k := range bucketsOf(l) {
				b.buckets[k] |= bit
			}
		}
	}
}

// next returns the first page from page on that may hold shards of the lane, or is not
// known.
func (o Outline) next(l lane, page int) int {
	in := bucketsOf(l)
	for k := page / blockPages; k < len(o.blocks); k++ {
		b := o.blocks[k]
		if b == nil {
			return max(page, k*blockPages)
		}
		may := b.buckets[in[0]] & b.buckets[in[1]]
		if may != 0 {
			may &= b.buckets[in[2]] & b.buckets[in[3]]
		}
		may |= ^b.known
		if k == page/blockPages {
			may &= ^uint64(0) << (page % blockPages)
		}
		if may != 0 {
			return k*blockPages + bits.TrailingZeros64(may)
		}
	}
	return max(page, len(o.blocks)*blockPages)
}
