package diagnosis_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"rollout/functions/diagnosis"
	"rollout/functions/status"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/host/hosttest"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/result"
	"rollout/shared/trials"
)

// gridFixture is a running run of trials: tasks × variants a and b × 2 replications.
type gridFixture struct {
	fixture
	m     record.Manifest
	state run.State
	shard map[string]int // by trial
	reads *reads
}

// reads counts what is read.
type reads struct{ docs, rows atomic.Int64 }

type countedDocs struct {
	document.Store
	*reads
}

func (d countedDocs) GetMany(ctx context.Context, keys []string) ([]document.Doc, error) {
	for _, k := range keys {
		if strings.HasPrefix(k, "shard/") {
			d.docs.Add(1)
		}
	}
	return d.Store.GetMany(ctx, keys)
}

type countedBlobs struct {
	blob.Store
	*reads
}

func (b countedBlobs) Get(ctx context.Context, key string, o blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	if strings.HasPrefix(key, "work/result") {
		b.rows.Add(1)
	}
	return b.Store.Get(ctx, key, o)
}

func newGrid(t *testing.T, order string, tasks int) *gridFixture {
	t.Helper()
	f := &gridFixture{fixture: newFixture(t), shard: map[string]int{}, reads: &reads{}}
	f.ports.Docs, f.ports.Blobs = countedDocs{f.ports.Docs, f.reads}, countedBlobs{f.ports.Blobs, f.reads}
	d := config.DefaultDeployment()
	f.Explainer = diagnosis.NewExplainer(f.ports, d, status.NewReader(f.ports, d, cloud.OneMachine()))
	m := inputtest.Manifest(1)
	m.Run, m.Kind, m.Config.Kind = runA, config.KindTrials, config.KindTrials
	m.Config.Design = &config.Design{Replications: 2, Order: order, Seed: 7}
	m.Config.Variants = []config.Variant{{Name: "a"}, {Name: "b"}}
	m.Config.Grades = []config.Grade{{Name: "g", Kind: "exact"}}
	var text strings.Builder
	for n := range tasks {
		fmt.Fprintf(&text, "{\"id\":\"task-%d\",\"prompt\":\"?\"}\n", n)
	}
	version := hosttest.Put(t, f.ports, "prompts/tasks.jsonl", text.String())
	var lines bytes.Buffer
	from := record.Ranges{Key: "prompts/tasks.jsonl", Version: version}
	if err := trials.Append(t.Context(), f.ports.Blobs, m, from, &lines); err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(lines.String()) {
		of, err := trials.ReadTrial([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		f.shard[of.ID] = n
		n++
	}
	f.m = inputtest.Plan(t, f.ports, m, lines.String())
	p := hosttest.Load[record.Plan](t, f.ports, record.PlanKey(runA))
	p.Growing, p.Appended = true, &record.Appended{Input: 1}
	f.save(record.PlanKey(runA), p)
	f.state = run.New(runA)
	f.state.Phase, f.state.Items, f.state.Shards = run.Running, uint64(n), n
	f.save(record.CoordinatorKey(runA), f.state)
	return f
}

// sent says that the shards of all trials but these were sent.
func (f *gridFixture) sent(but ...string) {
	f.state.NextShard = len(f.shard)
	for _, id := range but {
		f.state.Skipped.Add(f.shard[id])
	}
	f.save(record.CoordinatorKey(runA), f.state)
}

// done commits a trial: with a score, or with a class of failure.
func (f *gridFixture) done(id string, score float64, class fault.Class) {
	f.t.Helper()
	n := f.shard[id]
	row := result.Row{Class: class}
	if class == "" {
		row.Bytes = fmt.Appendf(nil, `{"id":%q,"messages":[],"completion":"yes","finish_reason":"stop",`, id)
		row.Bytes = grade.AppendMembers(row.Bytes, f.m.Config.Grades, [][]grade.Score{{{Value: score}}})
		row.Bytes = append(row.Bytes, "}\n"...)
	} else {
		row.Bytes = dialect.AppendError(nil, dialect.Plain, dialect.Failure{ID: id, Class: class, Message: "no",
			Place: dialect.Place{Item: uint64(n), File: "prompts/0.jsonl", Line: uint64(n + 1)}})
	}
	b, out := result.Append(nil, []result.Row{row})
	key := fmt.Sprintf("work/result-%d", n)
	hosttest.Put(f.t, f.ports, key, string(b))
	f.save(identity.ShardKey(runA, n), shard.Doc{Schema: 1, Run: runA, Shard: n, State: shard.Done, Attempt: 1,
		Items: 1, Result: &shard.Ref{Key: key, Length: int64(len(b)), Digest: identity.Content(b).String()}, OutputLen: out})
	f.state.Done.Set.Add(n)
	f.save(record.CoordinatorKey(runA), f.state)
}

// grid returns the rows of a page as text: for each cell, its trials' states by replication, and its
// mean.
func (f *gridFixture) grid(from int) (rows []string, g diagnosis.TrialGrid) {
	f.t.Helper()
	g, err := f.Trials(f.t.Context(), runA, from)
	if err != nil {
		f.t.Fatal(err)
	}
	for _, r := range g.Rows {
		line := fmt.Sprintf("%d %s:", r.Number, r.Task)
		for _, c := range r.Cells {
			line += " "
			for _, tr := range c.Trials {
				line += string(tr.State[:2])
			}
			if c.Score != nil {
				line += fmt.Sprintf("=%g", *c.Score)
			}
		}
		rows = append(rows, line)
	}
	return rows, g
}

// The grid has each trial in its cell, whatever the order of the schedule is, and what is done is
// read once.
func TestGridOfTrialsFillsWhileTheRunGoesOn(t *testing.T) {
	t.Parallel()
	for _, order := range []string{config.TrialsInterleaved, config.TrialsByTask, config.TrialsByVariant,
		config.TrialsRandom} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			f := newGrid(t, order, 3)
			f.wantGrid(0, 0, "0 task-0: wawa wawa", "1 task-1: wawa wawa", "2 task-2: wawa wawa")
			f.sent("t2.b.r0", "t2.b.r1")
			f.done("t0.a.r0", 1, "")
			f.done("t0.a.r1", 0.5, "")
			f.done("t0.b.r0", 0, fault.Refused)
			f.done("t0.b.r1", 0, fault.Timeout)
			held, err := shard.New(runA, f.shard["t1.a.r1"]).Claim("w", noon, shard.HolderAlive)
			if err != nil {
				t.Fatal(err)
			}
			f.save(identity.ShardKey(runA, held.Shard), held)
			f.state.Done.Set.Add(f.shard["t2.a.r0"]) // a pruned trial, which has no document
			f.save(record.CoordinatorKey(runA), f.state)
			want := []string{"0 task-0: anan=0.75 fain=0", "1 task-1: wain wawa", "2 task-2: prwa wawa"}
			f.wantGrid(10, 4, want...)
			f.wantGrid(5, 0, want...) // those that were sent, and are not done
			f.done("t1.a.r1", 1, "")
			f.wantGrid(5, 1, "0 task-0: anan=0.75 fain=0", "1 task-1: waan=1 wawa", "2 task-2: prwa wawa")
		})
	}
}

// wantGrid checks a grid, and how many documents of shards and how many rows it took.
func (f *gridFixture) wantGrid(docs, rows int64, want ...string) {
	f.t.Helper()
	docsBefore, rowsBefore := f.reads.docs.Load(), f.reads.rows.Load()
	got, g := f.grid(0)
	if !slices.Equal(got, want) || g.Tasks != len(want) || g.Replications != 2 || g.Next != nil || g.Unread != 0 {
		f.t.Errorf("the grid is\n%s\nwant\n%s\nof %+v", strings.Join(got, "\n"), strings.Join(want, "\n"), g)
	}
	if d, r := f.reads.docs.Load()-docsBefore, f.reads.rows.Load()-rowsBefore; d != docs || r != rows {
		f.t.Errorf("it took %d documents of shards and %d rows, want %d and %d", d, r, docs, rows)
	}
}

func TestGridOfTrialsIsReadInPages(t *testing.T) {
	t.Parallel()
	f := newGrid(t, config.TrialsInterleaved, 60)
	var got []string
	for from, pages := 0, 0; ; pages++ {
		rows, g := f.grid(from)
		if got = append(got, rows...); g.Next == nil {
			break
		}
		if from = *g.Next; pages > 5 {
			t.Fatal("the pages have no end")
		}
	}
	if len(got) != 60 || !strings.HasPrefix(got[59], "59 task-59:") {
		t.Errorf("%d rows, the last is %q", len(got), got[len(got)-1])
	}
	if rows, _ := f.grid(1000); len(rows) != 0 {
		t.Errorf("behind the end there are %q", rows)
	}
}

// An ended run has the sums of its variants, and its rows are those of its files.
func TestGridOfEndedTrialsHasTheirSums(t *testing.T) {
	t.Parallel()
	f := newGrid(t, config.TrialsInterleaved, 1)
	f.sent()
	f.done("t0.a.r0", 1, "")
	f.grid(0)
	f.state.Phase, f.state.Reason = run.Stopped, run.ReasonStopped
	f.save(record.CoordinatorKey(runA), f.state)
	score := 0.5
	sum := record.Summary{Trials: &record.Trials{Variants: []record.TrialVariant{
		{Name: "b", Trials: 2, Failed: map[string]int{"refused": 1, "too_long": 1}},
		{Name: "a", Trials: 2, Answered: 1, Score: &score, Low: new(float64), High: &score, Model: "m", TokensUSD: &score,
			SolvedTasks: 1, USDPerSolved: &score}}}}
	hosttest.Put(t, f.ports, record.OutputKey(runA, record.SummaryFile), string(record.Encode(sum)))
	rows, g := f.grid(0)
	if want := []string{"0 task-0: anin=1 inin"}; !slices.Equal(rows, want) {
		t.Errorf("the rows are %q, want %q", rows, want)
	}
	if b, err := json.Marshal(g.Variants); err != nil || !strings.Contains(string(b),
		`{"name":"a","ended":true,"trials":2,"answered":1,"failed":0,"infrastructure":0,"pruned":0,"scored":0,`+
			`"scored_tasks":0,"score":0.5,"low":0,"high":0.5,"model":"m","tokens_usd":0.5,"solved_tasks":1,`+
			`"usd_per_solved_task":0.5},{"name":"b","ended":true,"trials":2,"answered":0,"failed":2,`) {
		t.Errorf("the variants are %s, %v", b, err)
	}
}

// The grid refuses trials of another layout, and the items of other runs.
func TestOnlyTrialsOfAKnownLayoutAreAGrid(t *testing.T) {
	t.Parallel()
	f := newGrid(t, config.TrialsInterleaved, 3)
	f.m.Config.Design.Order = config.TrialsByTask
	f.m.Config.Variants = []config.Variant{{Name: "b"}, {Name: "a"}}
	f.save(record.ManifestKey(runA), f.m)
	refused := func(why string) {
		t.Helper()
		_, err := f.Trials(t.Context(), runA, 0)
		if !fault.Is(err, fault.NotFound) || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want %s", err, why)
		}
	}
	refused("another way")
	f.m.Kind = config.KindBatch
	f.save(record.ManifestKey(runA), f.m)
	refused("not a run of trials")
}
