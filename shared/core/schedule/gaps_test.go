package schedule

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"rollout/shared/core/interval"
)

func TestHeadsJSON(t *testing.T) {
	t.Parallel()
	want := Heads{{At: 2, Variant: 1, Chain: 9}, {At: 5, Variant: 3}, {At: 5, Variant: 4, Chain: 1<<32 - 1}}
	b, err := json.Marshal(want)
	if err != nil || string(b) != `[2,1,9,3,3,0,0,4,4294967295]` {
		t.Errorf("%v is %s (%v)", want, b, err)
	}
	var got Heads
	if err := json.Unmarshal(b, &got); err != nil || !slices.Equal(got, want) {
		t.Errorf("%s is read back as %v (%v)", b, got, err)
	}
	for _, in := range []string{`[1]`, `[1,2]`, `[-1,0,0]`, `[1,-1,0]`, `[1,0,4294967296]`, `{}`,
		`[9223372036854775807,0,0,1,0,0]`} {
		if err := json.Unmarshal([]byte(in), &got); err == nil {
			t.Errorf("%s is accepted as %v", in, got)
		}
	}
}

// TestShardsAreFoundUnderOtherRules scans a run whose shards were skipped under rules
// that a new version of the program has dropped, and that has no heads.
func TestShardsAreFoundUnderOtherRules(t *testing.T) {
	t.Parallel()
	g := Gaps{Skipped: interval.Of(interval.Range{Lo: 3, Hi: 5}, interval.Range{Lo: 7, Hi: 8})}
	rows := Pages{{First: 0, Rows: slices.Repeat([]Attributes{{Chain: 2, Variant: 1, Items: 1}}, 8)}}
	p := Scan{Rows: rows, Planned: 8, Window: 9}.Pick(&g, InFlight{}, 8)
	if got := p.Shards.Ranges(); len(got) != 2 || p.Shards.Len() != 3 || !g.Skipped.IsZero() {
		t.Errorf("%v are sent, %v still skipped", got, g.Skipped.Ranges())
	}
}

// TestScanWaitsWithoutAttributes checks that a scan which does not know the chains in
// flight sends nothing and forgets nothing.
func TestScanWaitsWithoutAttributes(t *testing.T) {
	t.Parallel()
	g := Gaps{Skipped: interval.Of(interval.Range{Lo: 1, Hi: 4}), Heads: Heads{{At: 1, Chain: 2}}}
	var f InFlight
	f.MarkSent(0, time.Unix(1, 0), interval.Range{Lo: 0, Hi: 1})
	p := Scan{Constraints: Constraints{Chains: true}, Planned: 9, Window: 9}.Pick(&g, f, 4)
	if !p.More || !p.Shards.IsZero() || p.NextShard != 4 || g.Skipped.Len() != 3 || len(g.Heads) != 1 {
		t.Errorf("picked %+v, gaps %+v", p, g)
	}
}

// TestVariantsHaveLimitsOfTheirOwn scans shards of three variants in turn: the first has its own
// limit, the second none, and the third that of all.
func TestVariantsHaveLimitsOfTheirOwn(t *testing.T) {
	t.Parallel()
	var rows []Attributes
	for n := range 15 {
		rows = append(rows, Attributes{Variant: uint32(n % 3), Items: 1})
	}
	scan := Scan{Constraints: Constraints{MaxInFlightByVariant: 1, OfVariants: []int{2, 0}},
		Rows: Pages{{First: 0, Rows: rows}}, Planned: 15, Window: 99}
	var g Gaps
	var f InFlight
	p := scan.Pick(&g, f, 0)
	want := interval.Of(interval.Range{Lo: 0, Hi: 5}, interval.Range{Lo: 7, Hi: 8}, interval.Range{Lo: 10, Hi: 11},
		interval.Range{Lo: 13, Hi: 14})
	if !slices.Equal(p.Shards.Ranges(), want.Ranges()) || !scan.Constraints.NeedAttributes() {
		t.Fatalf("%v are sent, want %v", p.Shards.Ranges(), want.Ranges())
	}
	f.MarkSent(0, time.Unix(1, 0), p.Shards.Ranges()...)
	f.MarkDone(3) // of the first variant
	f.MarkDone(2) // of the third
	if p = scan.Pick(&g, f, p.NextShard); p.Shards.Len() != 2 || !p.Shards.Has(6) || !p.Shards.Has(5) {
		t.Errorf("%v are sent when one of the first and one of the third variant are done", p.Shards.Ranges())
	}
}
