package finalize_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"rollout/events"
	"rollout/functions/finalize"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/result"
	"rollout/shared/shardtable"
)

const childID identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVF"

// newChild is a child of the run of newFixture, which asks its canceled items again.
// It keeps shards 0 and 1, the second with an item that was refused, and item 5; it has
// answered all others, and is finalizing.
func newChild(t *testing.T) fixture {
	t.Helper()
	d := newFixture(t)
	refused := dialect.AppendError(nil, dialect.Plain, dialect.Failure{ID: "id-2",
		Place: dialect.Place{Item: 2, File: "prompts/0.jsonl", Line: 3}, Class: fault.Refused, Message: "no"})
	d.commit(1, []result.Row{{Item: 0, Class: fault.Refused, Bytes: refused}, {Item: 1, Bytes: []byte("a3\n")}})
	if err := d.finalize(); err != nil {
		t.Fatal(err)
	}
	m := hosttest.Load[record.Manifest](t, d.Ports, record.ManifestKey(id))
	m.Run, m.Parent = childID, &record.Parent{Run: id, Selection: record.Selection{Only: []string{"canceled"}}}
	hosttest.Save(t, d.Ports, record.ManifestKey(childID), m)
	plan := hosttest.Load[record.Plan](t, d.Ports, record.PlanKey(id))
	plan.Inherited = &record.Inheritance{Plan: id, Kept: shard.Counts{OK: 3, Kept: 3, Failed: 1,
		ByClass: map[string]int{"refused": 1}}}
	hosttest.Save(t, d.Ports, record.PlanKey(childID), plan)
	hosttest.Put(t, d.Ports, record.InheritedKey(childID), string(d.inherited(2)))
	d.commitChild(2, result.Row{Item: 0, Bytes: []byte("b4\n")}, result.Row{Item: 1, Bytes: []byte("a5\n")})
	for n := 3; n < 6; n++ {
		d.commitChild(n, result.Row{Item: 0, Bytes: fmt.Appendf(nil, "b%d\n", 2*n)},
			result.Row{Item: 1, Bytes: fmt.Appendf(nil, "b%d\n", 2*n+1)})
	}
	s := state(run.Finalizing, 6)
	s.Run, s.Reason, s.Message, s.NextShard, s.FrozenFrontier = childID, run.ReasonDone, "", 6, 6
	hosttest.Save(t, d.Ports, record.CoordinatorKey(childID), s)
	return d
}

// inherited is the table of a child that touches the shards from the first one on, by
// the entries that finalize has written.
func (d fixture) inherited(first int) (table []byte) {
	var in shardtable.Inherited
	entries := []byte(hosttest.Object(d.t, d.Ports, record.FileEntriesKey(id)))
	for n := range 6 {
		in.FileEntry = shardtable.ParseFileEntry(entries[n*shardtable.FileEntrySize:])
		in.Touched = n >= first
		table = in.Append(table)
		in.FirstItem += uint64(in.Items())
		in.OutputAt, in.ErrorAt = in.OutputAt+in.Outputs, in.ErrorAt+in.Errors
	}
	return table
}

func (d fixture) commitChild(n int, rows ...result.Row) {
	b, out := result.Append(nil, rows)
	ref := shard.Ref{Key: record.ShardObjectKey(childID, n, 1, "result"), Length: int64(len(b)),
		Digest: identity.Content(b).String()}
	hosttest.Put(d.t, d.Ports, ref.Key, string(b))
	hosttest.Save(d.t, d.Ports, identity.ShardKey(childID, n), shard.Doc{Schema: 1, Run: childID, Shard: n,
		State: shard.Done, Worker: "w1", Items: 2, Result: &ref, OutputLen: out, Counts: shard.Counts{OK: 2}})
}

// finalizeChild finalizes the child, and returns its files and its summary.
func (d fixture) finalizeChild(o finalize.Options) (completions, errs string, sum record.Summary) {
	d.t.Helper()
	f := finalize.New(d.Ports, input.NewIndex(d.Blobs, d.Docs), o)
	for range 2 { // the first call asks for the segments
		if err := f.Finalize(d.t.Context(), events.Finalize{Run: string(childID)}); err != nil {
			d.t.Fatal(err)
		}
		for n := range 6 {
			e := events.FinalizeSegment{Run: string(childID), From: n, To: n + 1}
			if err := f.WriteSegment(d.t.Context(), e); err != nil {
				d.t.Fatal(err)
			}
		}
	}
	key := record.OutputKey(childID, record.SummaryFile)
	if err := input.ReadJSON(d.t.Context(), d.Blobs, key, &sum); err != nil {
		d.t.Fatal(err)
	}
	return hosttest.Object(d.t, d.Ports, record.OutputKey(childID, record.CompletionsFile)),
		hosttest.Object(d.t, d.Ports, record.OutputKey(childID, record.ErrorsFile)), sum
}

// What a child keeps and its parent has lost since are error rows of the class storage,
// and the summary counts exactly what the files have.
func TestChildHasOneRowOfEachItemAlsoWhenFilesOfItsParentVanish(t *testing.T) {
	t.Parallel()
	const answered = "b4\na5\nb6\nb7\nb8\nb9\nb10\nb11\n"
	for _, c := range []struct {
		name    string
		gone    []string // files of the parent
		changed bool     // the first row of the parent has no end
		kept    string   // rows of the parent in completions.jsonl
		classes []string // of errors.jsonl, by its rows
	}{
		{"nothing is gone", nil, false, "a0\na1\na3\n", []string{"refused"}},
		{"the answers are gone", []string{record.CompletionsFile}, false, "",
			[]string{"storage", "storage", "storage", "storage"}},
		{"the error rows are gone", []string{record.ErrorsFile}, false, "a0\na1\n", []string{"storage", "storage"}},
		{"both are gone", []string{record.CompletionsFile, record.ErrorsFile}, false, "",
			[]string{"storage", "storage", "storage", "storage"}},
		{"an answer is damaged", nil, true, "a3\n", []string{"storage", "storage", "refused"}},
	} {
		for how, o := range map[string]finalize.Options{
			"one stream": {},
			"segments":   {Segments: &finalize.SegmentOptions{StreamBelow: 1, MinBytes: 1}},
		} {
			t.Run(c.name+", "+how, func(t *testing.T) {
				t.Parallel()
				d := newChild(t)
				for _, file := range c.gone {
					if err := d.Blobs.Delete(t.Context(), record.OutputKey(id, file), ""); err != nil {
						t.Fatal(err)
					}
				}
				if key := record.OutputKey(id, record.CompletionsFile); c.changed {
					hosttest.Put(t, d.Ports, key, strings.Replace(hosttest.Object(t, d.Ports, key), "\n", "x", 1))
				}
				completions, errs, sum := d.finalizeChild(o)
				if completions != c.kept+answered {
					t.Errorf("completions are %q, want %q", completions, c.kept+answered)
				}
				byClass := map[string]int{}
				var classes []string
				for row := range strings.Lines(errs) {
					f, ok := dialect.ReadFailure(dialect.Plain, []byte(row))
					if !ok || f.Class == fault.Storage && !strings.Contains(f.Message, "the files of run "+string(id)) {
						t.Errorf("error row %s", row)
					}
					classes = append(classes, string(f.Class))
					byClass[string(f.Class)]++
				}
				if diff := cmp.Diff(c.classes, classes); diff != "" {
					t.Errorf("classes of errors.jsonl (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(byClass, sum.FailedByClass); diff != "" {
					t.Errorf("the summary counts (-files +summary):\n%s", diff)
				}
				if n := strings.Count(completions, "\n"); sum.Completed != uint64(n) || sum.Failed != uint64(len(classes)) ||
					sum.Items != 12 || sum.Phase != "completed_with_errors" {
					t.Errorf("the summary is %+v", sum)
				}
				if got := sum.FinishReasons["stop"]; got != 8 {
					t.Errorf("%d answers of the child stopped, want those that are not kept shards'", got)
				}
				d.wantEntries(completions, errs)
			})
		}
	}
}

// wantEntries checks the entries with which a child of the child would read its files.
func (d fixture) wantEntries(completions, errs string) {
	d.t.Helper()
	b := []byte(hosttest.Object(d.t, d.Ports, record.FileEntriesKey(childID)))
	if len(b) != 6*shardtable.FileEntrySize {
		d.t.Fatalf("%d bytes of entries", len(b))
	}
	for n := range 6 {
		e := shardtable.ParseFileEntry(b[n*shardtable.FileEntrySize:])
		if e.Outputs > uint64(len(completions)) || e.Errors > uint64(len(errs)) || e.OK+e.Failed != 2 ||
			strings.Count(completions[:e.Outputs], "\n") != int(e.OK) || strings.Count(errs[:e.Errors], "\n") != int(e.Failed) {
			d.t.Fatalf("shard %d has the entry %+v", n, e)
		}
		completions, errs = completions[e.Outputs:], errs[e.Errors:]
	}
	if completions != "" || errs != "" {
		d.t.Errorf("after the last entry come %q and %q", completions, errs)
	}
}

// A parent's files may have been replaced, by shorter ones or by ones with other rows at
// the places of its shards. No such row is delivered: its items fail.
func TestChildTakesNoRowsOfOtherFilesThanItsParentWrote(t *testing.T) {
	t.Parallel()
	longer := func(own string) string { return "{\"x\":1}\n" + own }
	noRows := func(own string) string { return strings.ReplaceAll(own, "\n", " ") }
	for _, c := range []struct {
		name, file string
		replace    func(own string) string
	}{
		{"shorter outputs", record.CompletionsFile, func(string) string { return "x\n" }},
		{"shorter errors", record.ErrorsFile, func(string) string { return "x\n" }},
		{"outputs behind another row", record.CompletionsFile, longer},
		{"errors behind another row", record.ErrorsFile, longer},
		{"outputs without an end of a row", record.CompletionsFile, noRows},
		{"outputs with more rows", record.CompletionsFile, func(own string) string { return "\n\n" + own[2:] }},
		{"errors of other items", record.ErrorsFile, func(own string) string {
			return strings.Replace(own, `"item":2`, `"item":7`, 1)
		}},
	} {
		d := newChild(t)
		own := hosttest.Object(t, d.Ports, record.OutputKey(id, c.file))
		hosttest.Put(t, d.Ports, record.OutputKey(id, c.file), c.replace(own))
		completions, errs, sum := d.finalizeChild(finalize.Options{})
		if strings.ContainsAny(completions, "{x ") || strings.Contains(completions, "\n\n") ||
			strings.Contains(errs, "{\"x") {
			t.Errorf("%s: rows of another file are in %q or %q", c.name, completions, errs)
		}
		if sum.FailedByClass["storage"] < 2 || sum.Completed+sum.Failed != 12 {
			t.Errorf("%s: the summary is %+v", c.name, sum)
		}
	}
}

// The items of a stopped child that were not asked again, and that it keeps, keep their
// rows; the others fail with the child's end.
func TestStoppedChildKeepsTheRowsOfItsParent(t *testing.T) {
	t.Parallel()
	d := newChild(t)
	s := state(run.Finalizing, 2)
	s.Run, s.NextShard, s.FrozenFrontier = childID, 2, 2
	for n := 2; n < 6; n++ {
		hosttest.Save(t, d.Ports, identity.ShardKey(childID, n), shard.New(childID, n))
	}
	s.Done.Set = interval.Of(interval.Range{Lo: 0, Hi: 2})
	hosttest.Save(t, d.Ports, record.CoordinatorKey(childID), s)
	completions, errs, sum := d.finalizeChild(finalize.Options{})
	if completions != outputs || strings.Count(errs, `"class":"canceled"`) != 7 || sum.FailedByClass["refused"] != 1 {
		t.Errorf("%q\n%s\n%+v", completions, errs, sum)
	}
	d.wantEntries(completions, errs)
}

func TestSummaryOfAChildSaysWhatItsRowsComeFrom(t *testing.T) {
	t.Parallel()
	d := newChild(t)
	_, _, sum := d.finalizeChild(finalize.Options{})
	want := &record.Retry{Parent: record.Parent{Run: id, Selection: record.Selection{Only: []string{"canceled"}}},
		ParentCompleted: 4, ParentFailed: 8, Kept: 3, KeptFailed: 1, Asked: 8, Answered: 8,
		StillFailedByClass: nil}
	if diff := cmp.Diff(want, sum.Retry, cmpopts.EquateEmpty(),
		cmpopts.IgnoreUnexported(interval.Set{})); diff != "" {
		t.Errorf("what the rows come from (-want +got):\n%s", diff)
	}
}
