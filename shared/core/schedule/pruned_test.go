package schedule

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPrunedBehavesAsMap compares the list with a map, in memory and read back from its JSON.
func TestPrunedBehavesAsMap(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var p Pruned
		twin := map[uint32]int{}
		for range rapid.IntRange(0, 80).Draw(t, "prunes") {
			v := PrunedVariant{rapid.Uint32Range(0, 70).Draw(t, "variant"), rapid.IntRange(0, 9).Draw(t, "from")}
			before := slices.Clone(p)
			next := p.With(v)
			if !slices.Equal(p, before) {
				t.Fatalf("With changed %v to %v", before, p)
			}
			if _, pruned := twin[v.Variant]; !pruned {
				twin[v.Variant] = v.From
			}
			p = next
		}
		b, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		var back Pruned
		if err := json.Unmarshal(b, &back); err != nil || len(p) > 0 && !reflect.DeepEqual(p, back) {
			t.Fatalf("%s is read back as %v, %v", b, back, err)
		}
		for v := range uint32(72) {
			from, pruned := twin[v]
			if back.HasVariant(v) != pruned {
				t.Fatalf("variant %d is in %v, want %v", v, back, twin)
			}
			for n := range 11 {
				if back.Has(v, n) != (pruned && n >= from) {
					t.Fatalf("shard %d of variant %d: %v, want %v", n, v, back, twin)
				}
			}
		}
		if len(back) != len(twin) || !slices.IsSortedFunc(back, func(a, b PrunedVariant) int {
			return int(a.Variant) - int(b.Variant)
		}) {
			t.Fatalf("%v, want the variants %v", back, slices.Sorted(maps.Keys(twin)))
		}
	})
}

func TestPrunedRejectsOtherJSON(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`[1]`, `[-1,0]`, `[1,-1]`, `[4294967296,0]`, `[2,0,1,0]`, `[1,0,1,0]`, `{}`, `[0.5,1]`} {
		var p Pruned
		if err := json.Unmarshal([]byte(text), &p); err == nil {
			t.Errorf("%s is read as %v", text, p)
		}
	}
}

// TestShardsBeforeAPruningAreSentLater prunes a variant from shard 6 on, of which shards before it
// wait for a cap.
func TestShardsBeforeAPruningAreSentLater(t *testing.T) {
	t.Parallel()
	page := Page{}
	for n := range 12 {
		page.Rows = append(page.Rows, Attributes{Variant: uint32(n % 2), Items: 1})
	}
	s := Scan{Constraints: Constraints{OfVariants: []int{0, 1}}, Rows: Pages{page}, Planned: 12, Window: 100}
	var g Gaps
	var f InFlight
	next, sent := 0, []int{}
	for range 8 {
		p := s.Pick(&g, f, next)
		next = p.NextShard
		for _, r := range p.Shards.Ranges() {
			for n := r.Lo; n < r.Hi; n++ {
				if n%2 == 1 {
					sent = append(sent, n)
				}
			}
		}
		f = InFlight{} // all are done
		if len(s.Pruned) == 0 {
			s.Pruned = s.Pruned.With(PrunedVariant{Variant: 1, From: 6})
			g.Prune(s.Pruned[0])
		}
	}
	if !slices.Equal(sent, []int{1, 3, 5}) || len(g.Heads) > 0 || g.Skipped.Len() != 3 {
		t.Errorf("of the pruned variant %v are sent; the gaps are %+v", sent, g)
	}
}
