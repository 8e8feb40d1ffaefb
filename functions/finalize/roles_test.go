package finalize_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/events"
	"rollout/functions/finalize"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/result"
)

// newJudged is a stopped run of 2 shards of answers and 3 of the role judge: two of
// them have a result, and the last was never sent.
func newJudged(t *testing.T) fixture {
	t.Helper()
	d := fixture{t: t, Ports: hosttest.New()}
	m := inputtest.WithJudge(inputtest.Manifest(2))
	inputtest.Plan(t, d.Ports, m, inputtest.Prompts(0, 4), inputtest.Prompts(4, 6))
	d.commit(0, []result.Row{{Item: 0, Bytes: []byte("a0\n")}, {Item: 1, Bytes: []byte("a1\n")}})
	d.commit(1, []result.Row{{Item: 0, Class: fault.Refused, Bytes: []byte("e2\n")}, {Item: 1, Bytes: []byte("a3\n")}})
	d.commit(2, []result.Row{{Item: 0, Bytes: []byte("j4\n")}, {Item: 1, Bytes: []byte("j5\n")}})
	d.commit(3, []result.Row{{Item: 0, Bytes: []byte("j6\n")}, {Item: 1, Class: fault.Timeout, Bytes: []byte("j7\n")}})
	s := state(run.Finalizing, 4)
	s.Shards, s.Items = 5, 10
	s.Done.Set = interval.Of(interval.Range{Lo: 0, Hi: 4})
	s.Roles = []run.RoleState{{RolePlan: run.RolePlan{Shards: 2, Items: 4}}, {RolePlan: run.RolePlan{Shards: 3, Items: 6}}}
	hosttest.Save(t, d.Ports, record.CoordinatorKey(id), s)
	return d
}

func TestFilesHaveTheAnswersAndTheSummaryCountsEveryRole(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]finalize.Options{
		"one stream": {},
		"segments":   {Segments: &finalize.SegmentOptions{StreamBelow: 1, MinBytes: 1}},
	} {
		d := newJudged(t)
		f := finalize.New(d.Ports, input.NewIndex(d.Blobs, d.Docs), o)
		for range 2 { // the first call asks for the segments
			if err := f.Finalize(t.Context(), events.Finalize{Run: string(id)}); err != nil {
				t.Fatal(err)
			}
			for n := range 5 {
				if err := f.WriteSegment(t.Context(), events.FinalizeSegment{Run: string(id), From: n, To: n + 1}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := d.file(record.CompletionsFile) + d.file(record.ErrorsFile); got != "a0\na1\na3\ne2\n" {
			t.Errorf("%s: the files have %q", name, got)
		}
		var sum record.Summary
		if err := json.Unmarshal([]byte(d.file(record.SummaryFile)), &sum); err != nil {
			t.Fatal(err)
		}
		want := []record.RoleCounts{
			{Name: "answer", Pool: "default", Model: "mock", Shards: 2, Items: 4, Completed: 3, Failed: 1,
				FailedByClass: map[string]int{"refused": 1}},
			{Name: "judge", Pool: "judges", Model: "wise", Shards: 3, Items: 6, Completed: 3, Failed: 3,
				FailedByClass: map[string]int{"timeout": 1, "canceled": 2}},
		}
		if diff := cmp.Diff(want, sum.Roles); diff != "" {
			t.Errorf("%s: roles (-want +got):\n%s", name, diff)
		}
		if sum.Items != 4 || sum.Completed != 3 || sum.Failed != 1 {
			t.Errorf("%s: %d items, %d completed, %d failed, want those of the answer", name, sum.Items, sum.Completed,
				sum.Failed)
		}
	}
}

// Tokens are those of all roles.
func TestSummaryCountsTheTokensOfEveryRole(t *testing.T) {
	t.Parallel()
	d := newJudged(t)
	for n, tokens := range []int64{1, 10, 100, 1000} {
		doc := d.shardDoc(n)
		doc.Counts.PromptTokens, doc.Counts.WastedTokens = tokens, 2*tokens
		d.doc(doc)
	}
	if err := d.finalize(); err != nil {
		t.Fatal(err)
	}
	var sum record.Summary
	if err := json.Unmarshal([]byte(d.file(record.SummaryFile)), &sum); err != nil {
		t.Fatal(err)
	}
	if sum.PromptTokens != 1111 || sum.WastedTokens != 2222 || sum.Roles[0].PromptTokens != 11 ||
		sum.Roles[0].WastedTokens != 22 || sum.Roles[1].PromptTokens != 1100 || sum.Roles[1].WastedTokens != 2200 {
		t.Errorf("%+v", sum)
	}
}

func (d fixture) shardDoc(n int) shard.Doc {
	return hosttest.Load[shard.Doc](d.t, d.Ports, identity.ShardKey(id, n))
}

// The rows of a further model are in the files as those of the first, in the order of the items, and
// count for both the run and the model.
func TestFilesHaveTheRowsOfEveryModel(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]finalize.Options{
		"one stream": {},
		"segments":   {Segments: &finalize.SegmentOptions{StreamBelow: 1, MinBytes: 1}},
	} {
		d := newJudged(t)
		m := hosttest.Load[record.Manifest](t, d.Ports, record.ManifestKey(id))
		m.Roles[0].Output = true
		hosttest.Save(t, d.Ports, record.ManifestKey(id), m)
		doc := d.shardDoc(3)
		doc.Counts.PromptTokens = 5
		d.doc(doc)
		f := finalize.New(d.Ports, input.NewIndex(d.Blobs, d.Docs), o)
		for range 2 {
			if err := f.Finalize(t.Context(), events.Finalize{Run: string(id)}); err != nil {
				t.Fatal(err)
			}
			for n := range 5 {
				if err := f.WriteSegment(t.Context(), events.FinalizeSegment{Run: string(id), From: n, To: n + 1}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := d.file(record.CompletionsFile); got != "a0\na1\na3\nj4\nj5\nj6\n" {
			t.Errorf("%s: the answers are %q", name, got)
		}
		if got := d.file(record.ErrorsFile); strings.Count(got, "\n") != 4 || !strings.HasPrefix(got, "e2\nj7\n{") {
			t.Errorf("%s: the errors are %q", name, got)
		}
		var sum record.Summary
		if err := json.Unmarshal([]byte(d.file(record.SummaryFile)), &sum); err != nil {
			t.Fatal(err)
		}
		want := []record.RoleCounts{
			{Name: "answer", Pool: "default", Model: "mock", Shards: 2, Items: 4, Completed: 3, Failed: 1,
				FailedByClass: map[string]int{"refused": 1}},
			{Name: "judge", Pool: "judges", Model: "wise", Output: true, Shards: 3, Items: 6, Completed: 3, Failed: 3,
				FailedByClass: map[string]int{"timeout": 1, "canceled": 2}, PromptTokens: 5},
		}
		if diff := cmp.Diff(want, sum.Roles); diff != "" {
			t.Errorf("%s: roles (-want +got):\n%s", name, diff)
		}
		if sum.Items != 10 || sum.Completed != 6 || sum.Failed != 4 || sum.PromptTokens != 5 {
			t.Errorf("%s: %+v", name, sum)
		}
	}
}
