package diagnosis_test

import (
	"strings"
	"testing"

	"rollout/functions/diagnosis"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
)

// TestExplainOfAPrunedItemReadsTheRecord explains an item whose shard is done and has no
// document. It is pruned only if a record says so.
func TestExplainOfAPrunedItemReadsTheRecord(t *testing.T) {
	t.Parallel()
	failure := dialect.AppendError(nil, dialect.Plain, dialect.Failure{Class: fault.Timeout, Message: "too slow",
		Place: dialect.Place{Item: 3, File: "prompts/0.jsonl", Line: 4}})
	for name, c := range map[string]struct {
		record bool
		phase  run.Phase
		state  diagnosis.ItemState
		class  fault.Class
		says   string
	}{
		"pruned": {true, run.Running, diagnosis.NotProcessed, fault.Pruned,
			"(0) was pruned before its shard was sent: worse"},
		"in a run that was cleaned up": {false, run.CompletedWithErrors, diagnosis.Failed, fault.Timeout,
			"it failed as timeout"},
	} {
		f := newFixture(t)
		m := inputtest.Manifest(2)
		m.Run = runA
		f.save(record.ManifestKey(runA), inputtest.Plan(t, f.ports, m, inputtest.Prompts(0, 4)))
		s := run.New(runA)
		s.Phase, s.Items, s.Shards, s.NextShard, s.Complete = c.phase, 4, 2, 2, true
		s.Done.Set = interval.Of(interval.Range{Lo: 0, Hi: 2})
		f.save(record.CoordinatorKey(runA), s)
		if c.record {
			hosttest.Put(t, f.ports, record.PrunedKey(runA, 0),
				string(record.Encode(record.PrunedVariant{Schema: record.Schema, Run: runA, Why: "worse"})))
		}
		if c.phase.Ended() {
			hosttest.Put(t, f.ports, record.OutputKey(runA, record.ErrorsFile), string(failure))
		}
		e, err := f.Explain(t.Context(), runA, "#3")
		if err != nil || len(e.Items) != 1 {
			t.Fatalf("%s: %+v, %v", name, e, err)
		}
		it := e.Items[0]
		if it.State != c.state || it.Class != c.class || !strings.Contains(strings.Join(it.History, "\n"), c.says) {
			t.Errorf("%s: %+v", name, it)
		}
	}
}
