package coordinate_test

import (
	"slices"
	"testing"

	"rollout/events"
	"rollout/shared/config"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/host"
	"rollout/shared/record"
)

// A run with facts asks finalize for them whenever the items of another part have ended, and a
// run without facts only at its end.
func TestFactsAreAskedForWhenAPartMayBeWhole(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		facts config.Facts
		asked []bool // after each shard of two items
	}{
		"parts of five items": {config.Facts{Parquet: true, PartItems: 5}, []bool{false, false, true, false, true, false}},
		"parts of two items":  {config.Facts{Parquet: true, PartItems: 2}, []bool{true, true, true, true, true, true}},
		"large parts":         {config.Facts{Parquet: true}, make([]bool, 6)},
		"no facts":            {config.Facts{}, make([]bool, 6)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t, 8, 2, func(m *record.Manifest) { m.Config.Facts = c.facts })
			co := d.coordinator()
			step := func(e run.Event) bool {
				if _, err := co.Apply(t.Context(), id, []run.Event{e}); err != nil {
					t.Fatal(err)
				}
				return slices.Contains(d.received(host.TaskQueue), events.Payload(events.Finalize{Run: string(id)}))
			}
			step(run.Event{Kind: run.Reevaluate})
			for n, want := range c.asked {
				done := run.Event{Kind: run.ShardDone, Shard: n, Counts: shard.Counts{OK: 2}}
				if got := step(done); got != want {
					t.Errorf("after shard %d finalize is asked: %t, want %t", n, got, want)
				}
			}
		})
	}
}
