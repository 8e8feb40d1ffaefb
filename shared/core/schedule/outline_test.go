package schedule

import (
	"testing"

	"pgregory.net/rapid"
)

// TestOutlineLeavesOutNoPage compares where an outline says that a lane may be with
// where it is.
func TestOutlineLeavesOutNoPage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var o Outline
		pages := map[int]Page{}
		most := rapid.IntRange(1, 3).Draw(t, "blocks")
		for range rapid.IntRange(0, 12).Draw(t, "pages") {
			k := rapid.IntRange(0, 3*blockPages).Draw(t, "page")
			p := Page{First: k * PageShards}
			chains, variant := rapid.Uint32Range(1, 300).Draw(t, "chains"), rapid.Uint32Range(0, 3).Draw(t, "variant")
			for n := range rapid.SampledFrom([]int{PageShards, PageShards, 17}).Draw(t, "rows") {
				p.Rows = append(p.Rows, Attributes{Chain: uint32(n) % chains, Variant: variant})
			}
			if old, ok := pages[k]; ok {
				p = old // tables are immutable
			}
			before := o
			o = o.With([]Page{p}, most)
			if before.Blocks() > most || o.Blocks() > most {
				t.Fatalf("%d blocks, want at most %d", o.Blocks(), most)
			}
			pages[k] = p
		}
		for variant := range uint32(4) {
			for chain := range uint32(300) {
				from := rapid.IntRange(0, 3*blockPages).Draw(t, "from")
				l := lane{variant, chain}
				for at := from; at < o.next(l, from); at++ {
					p, given := pages[at]
					if !given || len(p.Rows) < PageShards {
						t.Fatalf("page %d is not known, and left out", at)
					}
					for _, a := range p.Rows {
						if a.lane(true) == l || chain == 0 && a.Variant == variant {
							t.Fatalf("page %d has %v, and is left out", at, l)
						}
					}
				}
			}
		}
	})
}

// TestOutlineLeavesOutMostOtherPages checks that a search looks at few pages without a
// shard of its lane.
func TestOutlineLeavesOutMostOtherPages(t *testing.T) {
	t.Parallel()
	const all = 3 * blockPages
	var pages []Page
	for k := range all {
		p := Page{First: k * PageShards}
		for n := range PageShards {
			p.Rows = append(p.Rows, Attributes{Chain: uint32(k*PageShards+n) + 1, Variant: uint32(n % 20)})
		}
		pages = append(pages, p)
	}
	o := Outline{}.With(pages, all)
	looks := 0
	for chain := range uint32(100) {
		for k := 0; k < all; k++ {
			if k = o.next(lane{25, chain + 1}, k); k < all {
				looks++
			}
		}
	}
	if most := 100 * all / 100; looks > most {
		t.Errorf("100 searches look at %d pages, want at most %d", looks, most)
	}
}
