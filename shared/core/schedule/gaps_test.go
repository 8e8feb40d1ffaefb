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
