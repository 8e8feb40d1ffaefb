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
	"rollout/shared/shardtable"
)

// newKeeping is runB, a child of runA that keeps the rows of all 4 items: the one of
// item 1 is an error row.
func newKeeping(t *testing.T) fixture {
	t.Helper()
	f := newFixture(t)
	m := inputtest.Manifest(2)
	m.Run = runA
	inputs := `{"id":"a","prompt":"0"}` + "\n" + `{"id":"b","prompt":"1"}` + "\n" + inputtest.Prompts(2, 2)
	m = inputtest.Plan(t, f.ports, m, inputs)
	m.Run, m.Parent = runB, &record.Parent{Run: runA, Selection: record.Selection{Only: []string{"refused"}}}
	f.save(record.ManifestKey(runB), m)
	plan := hosttest.Load[record.Plan](t, f.ports, record.PlanKey(runA))
	plan.Inherited = &record.Inheritance{Plan: runA}
	f.save(record.PlanKey(runB), plan)
	failure := dialect.AppendError(nil, dialect.Plain, dialect.Failure{ID: "b", Class: fault.Timeout, Message: "too slow",
		Place: dialect.Place{Item: 1, File: "prompts/0.jsonl", Line: 2}})
	hosttest.Put(t, f.ports, record.OutputKey(runA, record.CompletionsFile), `{"id":"a"}`+"\n")
	hosttest.Put(t, f.ports, record.OutputKey(runA, record.ErrorsFile), string(failure))
	row := shardtable.Inherited{FileEntry: shardtable.FileEntry{
		Outputs: 11, Errors: uint64(len(failure)), OK: 1, Failed: 1}}
	hosttest.Put(t, f.ports, record.InheritedKey(runB), string(row.Append(row.Append(nil))))
	f.child(run.Running)
	return f
}

// child sets the phase of the child.
func (f fixture) child(p run.Phase) {
	s := run.New(runB)
	s.Phase, s.Items, s.Shards, s.NextShard, s.Complete = p, 4, 2, 2, true
	s.Done.Set = interval.Of(interval.Range{Lo: 0, Hi: 2})
	f.save(record.CoordinatorKey(runB), s)
}

func (f fixture) delete(keys ...string) {
	f.t.Helper()
	for _, key := range keys {
		if err := f.ports.Blobs.Delete(f.t.Context(), key, ""); err != nil {
			f.t.Fatal(err)
		}
	}
}

func TestExplainOfAKeptItemNamesTheRowOfTheParent(t *testing.T) {
	t.Parallel()
	completions, errs := record.OutputKey(runA, record.CompletionsFile), record.OutputKey(runA, record.ErrorsFile)
	for name, c := range map[string]struct {
		item   string
		change func(fixture)
		state  diagnosis.ItemState
		class  fault.Class
		row    string // its key
		says   string
	}{
		"answered": {"#0", nil, diagnosis.Answered, "", completions, "the run keeps its row from run " + string(runA)},
		"failed":   {"#1", nil, diagnosis.Failed, fault.Timeout, errs, "the run keeps its row"},
		"the parent's files are gone": {"#0", func(f fixture) { f.delete(completions, errs) }, diagnosis.NotProcessed,
			fault.Storage, "", "which had its row, are gone"},
		"in a child that has ended": {"#0", func(f fixture) {
			hosttest.Put(f.t, f.ports, record.OutputKey(runB, record.CompletionsFile), `{"id":"a"}`+"\n")
			f.child(run.Completed)
		}, diagnosis.Answered, "", record.OutputKey(runB, record.CompletionsFile), "the run keeps its row"},
		"in a child that was cleaned": {"#0", func(f fixture) {
			hosttest.Put(f.t, f.ports, record.OutputKey(runB, record.CompletionsFile), `{"id":"a"}`+"\n")
			f.child(run.Completed)
			f.delete(record.InheritedKey(runB))
		}, diagnosis.Answered, "", record.OutputKey(runB, record.CompletionsFile), "its answer is in"},
	} {
		f := newKeeping(t)
		if c.change != nil {
			c.change(f)
		}
		e, err := f.Explain(t.Context(), runB, c.item)
		if err != nil || len(e.Items) != 1 {
			t.Errorf("%s: %+v, %v", name, e, err)
			continue
		}
		if story := strings.Join(e.History, "\n"); !strings.Contains(story, "it retries run "+string(runA)+": refused") {
			t.Errorf("%s: the run's story is\n%s", name, story)
		}
		got, key := e.Items[0], ""
		if got.Row != nil {
			key = got.Row.Key
		}
		if got.State != c.state || got.Class != c.class || key != c.row ||
			!strings.Contains(strings.Join(got.History, "\n"), c.says) {
			t.Errorf("%s: %+v in %s", name, got, key)
		}
	}
}
