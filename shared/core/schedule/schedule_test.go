package schedule

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/core/interval"
)

func TestWindow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                   string
		pool, buffered, ranges int
		want                   int
	}{
		{"no pool", 0, 0, 0, 256},
		{"a small pool", 64, 0, 1, 256},
		{"four times the pool", 65, 0, 1, 260},
		{"never above what a document can hold", 257, 0, 1, 1024},
		{"a huge pool", 2000, 0, 1, 2500},
		{"at the limit of buffered shards", 0, 4096, 1, 256},
		{"one buffered shard more", 0, 4097, 1, 32},
		{"above the second limit of buffered shards", 500, 16385, 1, 1},
		{"at the limit of ranges", 0, 64, 64, 256},
		{"one range more", 0, 65, 65, 32},
		{"a larger pool may leave more ranges", 256, 200, 200, 1024},
	} {
		if got := Window(c.pool, c.buffered, c.ranges); got != c.want {
			t.Errorf("%s: Window(%d, %d, %d) = %d, want %d", c.name, c.pool, c.buffered, c.ranges, got, c.want)
		}
	}
}

// chain admits one shard in flight for each variant and chain.
type chain struct{ busy map[[2]uint32]bool }

func (k chain) Admit(c Candidate) bool {
	lease := [2]uint32{c.Variant, c.Chain}
	if k.busy[lease] {
		return false
	}
	k.busy[lease] = true
	return true
}

// variantCap admits a number of shards in flight for each variant.
type variantCap struct {
	caps     map[uint32]int
	inFlight map[uint32]int
}

func (k variantCap) Admit(c Candidate) bool {
	if limit, limited := k.caps[c.Variant]; limited && k.inFlight[c.Variant] >= limit {
		return false
	}
	k.inFlight[c.Variant]++
	return true
}

// pruned admits no shard of these variants.
type pruned map[uint32]bool

func (p pruned) Admit(c Candidate) bool { return !p[c.Variant] }

func TestPick(t *testing.T) {
	t.Parallel()
	variants := func(n int) Candidate { return Candidate{Shard: n, Variant: uint32(n % 2), Chain: uint32(n / 4)} }
	span := func(lo, hi int) interval.Range { return interval.Range{Lo: lo, Hi: hi} }
	for _, c := range []struct {
		name                 string
		next, planned, limit int
		constraints          []Constraint
		want                 []interval.Range
	}{
		{"nothing planned", 3, 3, 9, nil, nil},
		{"the limit", 2, 9, 3, nil, []interval.Range{span(2, 5)}},
		{"no room", 2, 9, 0, nil, nil},
		{"cap 4 yields 4 in flight", 0, 9, 9, []Constraint{&Cap{Max: 4}}, []interval.Range{span(0, 4)}},
		{"shards in flight count", 3, 9, 9, []Constraint{&Cap{InFlight: 3, Max: 4}}, []interval.Range{span(3, 4)}},
		{"a full cap", 3, 9, 9, []Constraint{&Cap{InFlight: 4, Max: 4}}, nil},
		{"edge 11: a chain has one shard in flight", 0, 12, 12,
			[]Constraint{chain{map[[2]uint32]bool{{0, 1}: true}}}, // variant 0's chain 1 is in flight
			[]interval.Range{span(0, 2), span(5, 6), span(8, 10)}},
		{"a variant's cap below the global one", 0, 12, 12,
			[]Constraint{variantCap{map[uint32]int{1: 1}, map[uint32]int{}}, &Cap{Max: 4}},
			[]interval.Range{span(0, 3), span(4, 5)}},
		{"a pruned variant is skipped", 0, 6, 12, []Constraint{pruned{0: true}},
			[]interval.Range{span(1, 2), span(3, 4), span(5, 6)}},
		{"a refused shard does not count for a later cap", 0, 8, 12, []Constraint{pruned{0: true}, &Cap{Max: 2}},
			[]interval.Range{span(1, 2), span(3, 4)}},
	} {
		got := Pick(c.next, c.planned, c.limit, variants, c.constraints...)
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

func TestLossCheckDelayDoublesTo40s(t *testing.T) {
	t.Parallel()
	sent := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	for g, seconds := range []time.Duration{5, 10, 20, 40, 40} {
		want := seconds * time.Second
		c := Chunk{Generation: g, SentAt: sent}
		if got := lossCheckDelay(g); got != want || c.Due(sent.Add(want-time.Millisecond)) || !c.Due(sent.Add(want)) {
			t.Errorf("generation %d is checked after %s, want %s", g, got, want)
		}
	}
	if got := lossCheckDelay(1 << 40); got != 40*time.Second {
		t.Errorf("a high generation is checked after %s, want 40s", got)
	}
}

// TestGenerationsRepeat checks that generations stay small: those with the longest
// backoff repeat.
func TestGenerationsRepeat(t *testing.T) {
	t.Parallel()
	g := 0
	for range 1000 {
		next := NextGeneration(g)
		if next == g || next > 15 || next < g && lossCheckDelay(next) != lossCheckDelay(g) {
			t.Fatalf("generation %d is followed by %d", g, next)
		}
		g = next
	}
}
