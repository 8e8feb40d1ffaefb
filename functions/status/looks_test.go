package status_test

import (
	"testing"
	"time"

	"rollout/functions/status"
	"rollout/shared/config"
	"rollout/shared/core/run"
	"rollout/shared/core/schedule"
	"rollout/shared/input/inputtest"
	"rollout/shared/kind"
	"rollout/shared/record"
)

// TestLooksAreThoseThatCoordinateKnows also checks that a run that does not prune has none.
func TestLooksAreThoseThatCoordinateKnows(t *testing.T) {
	t.Parallel()
	m := inputtest.Manifest(1)
	m.Kind, m.Config.Kind = config.KindTrials, config.KindTrials
	m.Config.Variants = []config.Variant{{Name: "a"}, {Name: "b"}}
	m.Config.Design = &config.Design{Replications: 1, Order: config.TrialsInterleaved}
	p := status.Progress{Manifest: m, State: run.New(m.Run), Plan: record.Plan{Shards: 120, Looks: 3,
		Pruned: []record.PlannedPruning{{Variant: 1, From: 40, Why: "look 3 of 10: worse"}, {Variant: 0, From: 50}}}}
	p.Kind, _ = kind.Table{}.Of(m.Kind)
	p.State.Looks, p.State.Pruned = 3, schedule.Pruned{{Variant: 1, From: 40}}
	if s := status.Of(p, time.Time{}); s.Looks != nil {
		t.Errorf("a run without pruning has looks: %+v", s.Looks)
	}
	rule := config.DefaultPruning()
	rule.Rule = config.PruneRace
	p.Manifest.Config.Pruning = &rule
	p.Manifest.Parent = &record.Parent{}
	if s := status.Of(p, time.Time{}); s.Looks != nil {
		t.Errorf("a child has looks: %+v", s.Looks)
	}
	p.Manifest.Parent = nil
	s := status.Of(p, time.Time{})
	want := status.PrunedVariant{Variant: "b", From: 40, Why: "look 3 of 10: worse"}
	if l := s.Looks; l == nil || l.Decided != 3 || l.Of != 10 || len(l.Pruned) != 1 || l.Pruned[0] != want {
		t.Errorf("the looks are %+v, want 3 of 10, and %+v", s.Looks, want)
	}
}
