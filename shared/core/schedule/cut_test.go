package schedule

import (
	"slices"
	"testing"

	"rollout/shared/core/interval"
)

func TestCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		n, parts int
		want     []interval.Range
	}{
		{"even", 6, 3, []interval.Range{{Lo: 0, Hi: 2}, {Lo: 2, Hi: 4}, {Lo: 4, Hi: 6}}},
		{"the first shards take the remainder", 8, 3, []interval.Range{{Lo: 0, Hi: 3}, {Lo: 3, Hi: 6}, {Lo: 6, Hi: 8}}},
		{"more parts than items", 1, 3, []interval.Range{{Lo: 0, Hi: 1}, {Lo: 1, Hi: 1}, {Lo: 1, Hi: 1}}},
		{"no items", 0, 2, []interval.Range{{}, {}}},
		{"no workers", 5, 0, []interval.Range{{Lo: 0, Hi: 5}}},
		{"fewer than no workers", 5, -3, []interval.Range{{Lo: 0, Hi: 5}}},
		{"fewer than no items", -5, 2, []interval.Range{{}, {}}},
	} {
		if got := Cut(c.n, c.parts); !slices.Equal(got, c.want) {
			t.Errorf("%s: Cut(%d, %d) = %v, want %v", c.name, c.n, c.parts, got, c.want)
		}
	}
}

// TestCutFormula compares with the formula of the design of ticket-parallel rollouts:
// counts[r] = B//W + (r < B%W), with exclusive prefix sums as offsets.
func TestCutFormula(t *testing.T) {
	t.Parallel()
	for b := range 51 {
		for w := 1; w <= 16; w++ {
			got := Cut(b, w)
			if len(got) != w {
				t.Fatalf("Cut(%d, %d) has %d shards", b, w, len(got))
			}
			offset, smallest, largest := 0, b, 0
			for r, shard := range got {
				count := b / w
				if r < b%w {
					count++
				}
				if shard.Lo != offset || shard.Len() != count {
					t.Errorf("shard %d of Cut(%d, %d) is %v, want %d items from %d", r, b, w, shard, count, offset)
				}
				offset += count
				smallest, largest = min(smallest, count), max(largest, count)
			}
			if offset != b {
				t.Errorf("Cut(%d, %d) covers %d items", b, w, offset)
			}
			if largest-smallest > 1 {
				t.Errorf("the sizes of Cut(%d, %d) differ by %d", b, w, largest-smallest)
			}
		}
	}
}
