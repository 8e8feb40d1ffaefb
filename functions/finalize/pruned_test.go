package finalize_test

import (
	"bytes"
	"strings"
	"testing"

	"rollout/shared/blob"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/schedule"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// TestUnsentShardsGetErrorRows finalizes runs whose last two shards were never sent,
// below the frontier.
func TestUnsentShardsGetErrorRows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		edit func(*run.State)
		want string
	}{
		{"skipped when the run was stopped", func(s *run.State) {
			s.Skipped = interval.Of(interval.Range{Lo: 4, Hi: 6})
		}, `"class":"canceled","error":"the run ended first: enough"`},
		{"passed over because their variant is pruned", func(s *run.State) {
			s.Reason, s.Message = run.ReasonDone, ""
			s.Done.Set.AddRange(interval.Range{Lo: 4, Hi: 6})
			s.Pruned = s.Pruned.With(schedule.PrunedVariant{From: 4})
		}, `"class":"pruned","error":"its variant was pruned: it is worse"`},
		{"skipped, of a pruned variant, when the run was stopped", func(s *run.State) {
			s.Skipped = interval.Of(interval.Range{Lo: 4, Hi: 6})
			s.Pruned = s.Pruned.With(schedule.PrunedVariant{})
		}, `"class":"pruned","error":"its variant was pruned: it is worse"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newFixture(t)
			why := record.Encode(record.PrunedVariant{Schema: record.Schema, Run: id, Why: "it is worse"})
			_, err := d.Blobs.Put(t.Context(), record.PrunedKey(id, 0), bytes.NewReader(why), blob.PutOptions{CreateOnly: true})
			if err != nil {
				t.Fatal(err)
			}
			s := state(run.Finalizing, 4)
			s.NextShard, s.FrozenFrontier = 6, 6
			c.edit(&s)
			hosttest.Save(t, d.Ports, record.CoordinatorKey(id), s)
			if err := d.finalize(); err != nil {
				t.Fatal(err)
			}
			errs := strings.Split(strings.TrimSpace(d.file(record.ErrorsFile)), "\n")
			if len(errs) != 8 {
				t.Fatalf("errors are %q", errs)
			}
			for _, row := range errs[4:] {
				if !strings.Contains(row, c.want) {
					t.Errorf("%s, want %s", row, c.want)
				}
			}
		})
	}
}
