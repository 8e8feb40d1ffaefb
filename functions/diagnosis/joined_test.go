package diagnosis_test

import (
	"strings"
	"testing"

	"rollout/functions/diagnosis"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// freed ends the run of newShown, stopped before its last shard was answered, and frees the
// results of its shards.
func (f fixture) freed() {
	f.t.Helper()
	read := func(key string) string {
		b, err := input.ReadObject(f.t.Context(), f.ports.Blobs, key, 1<<20)
		if err != nil {
			f.t.Fatal(err)
		}
		return string(b)
	}
	first := read("work/result")
	answer, failure := first[:strings.Index(first, "\n")+1], first[strings.Index(first, "\n")+1:]
	checkpoint := read("work/checkpoint")
	third := checkpoint[strings.Index(checkpoint, "\n")+1:]
	var errs []string
	for n := range 6 {
		switch n {
		case 1:
			errs = append(errs, failure)
		case 3, 4, 5:
			at := dialect.Place{Item: uint64(n), File: "prompts/0.jsonl", Line: uint64(n + 1)}
			errs = append(errs, string(dialect.AppendError(nil, dialect.Plain, dialect.Failure{Place: at,
				Class: fault.CanceledItem, Message: "the run ended first"})))
		}
	}
	entry := func(outputs, errs string, ok, failed uint32) string {
		return string(shardtable.FileEntry{Outputs: uint64(len(outputs)), Errors: uint64(len(errs)), OK: ok,
			Failed: failed}.Append(nil))
	}
	for key, text := range map[string]string{
		record.OutputKey(runA, record.CompletionsFile): answer + third,
		record.OutputKey(runA, record.ErrorsFile):      strings.Join(errs, ""),
		record.FileEntriesKey(runA): entry(answer, failure, 1, 1) + entry(third, errs[1], 1, 1) +
			entry("", errs[2]+errs[3], 0, 2),
	} {
		hosttest.Put(f.t, f.ports, key, text)
	}
	s := hosttest.Load[run.State](f.t, f.ports, record.CoordinatorKey(runA))
	s.Phase, s.Reason, s.FrozenFrontier = run.Stopped, run.ReasonStopped, 2
	s.Done.Set = interval.Of(interval.Range{Lo: 0, Hi: 2})
	f.save(record.CoordinatorKey(runA), s)
	d := hosttest.Load[shard.Doc](f.t, f.ports, identity.ShardKey(runA, 1))
	d.State, d.Sealed = shard.Done, fault.CanceledItem
	f.save(identity.ShardKey(runA, 1), d)
	for _, key := range []string{"work/result", "work/checkpoint"} {
		if err := f.ports.Blobs.Delete(f.t.Context(), key, ""); err != nil {
			f.t.Fatal(err)
		}
	}
}

func TestShowReadsTheFilesOfARunWhoseResultsAreFreed(t *testing.T) {
	t.Parallel()
	f := newShown(t)
	f.freed()
	for item, c := range map[string]struct {
		state  diagnosis.ItemState
		class  fault.Class
		file   string
		line   uint64
		output string
		story  string
	}{
		"#0": {diagnosis.Answered, "", record.CompletionsFile, 1, `"completion":"first"`,
			"worker w1 committed its row (attempt 3)"},
		"#1": {diagnosis.Failed, fault.Timeout, record.ErrorsFile, 1, `"class":"timeout"`, "it failed as timeout: too slow"},
		"#2": {diagnosis.Answered, "", record.CompletionsFile, 2, `"completion":"third"`, "its answer is in"},
		"#3": {diagnosis.NotProcessed, fault.CanceledItem, record.ErrorsFile, 2, `"item":3`, "its line is in"},
		"#5": {diagnosis.NotProcessed, fault.CanceledItem, record.ErrorsFile, 4, `"item":5`,
			"the run ended before its shard was sent"},
	} {
		_, shown, err := f.Show(t.Context(), runA, item)
		if err != nil || len(shown) != 1 {
			t.Errorf("%s: %+v, %v", item, shown, err)
			continue
		}
		got := shown[0]
		if got.State != c.state || got.Class != c.class || got.Row == nil ||
			got.Row.Key != record.OutputKey(runA, c.file) || got.Row.Line != c.line {
			t.Errorf("%s: it is %s (%s), its row is at %+v", item, got.State, got.Class, got.Row)
		}
		if !strings.Contains(string(got.Output), c.output) || !strings.Contains(strings.Join(got.History, "\n"), c.story) {
			t.Errorf("%s: its row is %s, its story %q", item, got.Output, got.History)
		}
	}
}
