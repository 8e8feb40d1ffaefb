package plan_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"rollout/events"
	"rollout/functions/plan"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/kind"
	"rollout/shared/record"
)

// echo is a kind whose plan asks about each answer of what was planned last, until an
// answer is "last".
func echo() kind.Kind {
	return kind.Kind{Name: "echo", Grow: func(_ context.Context, g kind.Growth, w io.Writer) error {
		for row, err := range g.Answers {
			if err != nil {
				return err
			}
			answer := strings.TrimSpace(string(row))
			if answer == "last" {
				return nil
			}
			if answer == "nonsense" {
				return fault.New(fault.Corrupt, "an answer is nonsense")
			}
			if _, err := fmt.Fprintf(w, "{\"prompt\":\"%s?\"}\n", answer); err != nil {
				return err
			}
		}
		return nil
	}}
}

// newGrowing returns a planner of a run whose plan grows.
func newGrowing(t *testing.T, files ...file) *fixture {
	t.Helper()
	d := newFixture(t, 2, files...)
	d.m.Kind = "echo"
	hosttest.Save(t, d.Ports, record.ManifestKey(id), d.m)
	d.Planner = d.planner()
	return d
}

func (d *fixture) planner() *plan.Planner {
	return plan.New(d.Ports, plan.Options{Kinds: kind.Table{}.With(echo())})
}

// answer commits the next shard of the run, with these output rows and one error row.
func (d *fixture) answer(rows ...string) {
	d.t.Helper()
	s := run.New(id)
	if _, _, err := host.Load(d.t.Context(), d.Docs, record.CoordinatorKey(id), &s); err != nil {
		d.t.Fatal(err)
	}
	n := s.NextShard
	out := strings.Join(append(slices.Clone(rows), ""), "\n")
	body := out + "an error row\n"
	key := record.ShardObjectKey(id, n, 1, "x")
	hosttest.Put(d.t, d.Ports, key, body)
	doc := shard.New(id, n)
	doc.State, doc.OutputLen = shard.Done, int64(len(out))
	doc.Result = &shard.Ref{Key: key, Length: int64(len(body)), Digest: identity.Content([]byte(body)).String()}
	hosttest.Save(d.t, d.Ports, identity.ShardKey(id, n), doc)
	s.Phase, s.NextShard, s.Shards = run.Running, n+1, n+1
	if _, _, err := s.Done.Add(n, s.NextShard); err != nil {
		d.t.Fatal(err)
	}
	hosttest.Save(d.t, d.Ports, record.CoordinatorKey(id), s)
}

// prompts returns the lines of the run as workers load them.
func (d *fixture) prompts() (out []string) {
	d.each(func(l input.Line) {
		out = append(out, fmt.Sprintf("%d %s:%d %s", l.Place.Item, l.Place.File, l.Place.Line, l.Bytes))
	})
	return out
}

func TestPlanGrowsByWhatTheKindMakesOfTheLastAnswers(t *testing.T) {
	t.Parallel()
	const first, second = `{"prompt":"1"}` + "\n" + `{"prompt":"2"}` + "\n", "\n" + `{"prompt":"3"}` + "\n"
	d := newGrowing(t, file{text: first}, file{text: second})
	d.submitted()
	if p := d.plan(); !p.AllMerged() || p.Complete() || p.Sources() != 2 || p.Shards != 2 {
		t.Fatalf("the inputs give %+v", p)
	}
	d.answer("a", "b")
	d.submitted()
	if p := d.plan(); p.Appended != nil {
		t.Fatalf("it grew before its last shard was done: %+v", p)
	}
	d.answer("c")
	d.submitted()
	if p := d.plan(); !p.AllMerged() || p.Complete() || p.Sources() != 3 || p.Shards != 4 || p.Items != 6 {
		t.Fatalf("after the first round: %+v", p)
	}
	d.answer("d")
	d.answer() // all items of this shard failed
	d.submitted()
	d.answer("last")
	d.submitted()
	p := d.plan()
	if !p.Complete() || p.Sources() != 4 || p.Appended.Input != 3 {
		t.Errorf("the complete plan: %+v", p)
	}
	want := []string{
		`0 prompts/0.jsonl:1 {"prompt":"1"}`, `1 prompts/0.jsonl:2 {"prompt":"2"}`, `2 prompts/1.jsonl:2 {"prompt":"3"}`,
		`3 range 2:1 {"prompt":"a?"}`, `4 range 2:2 {"prompt":"b?"}`, `5 range 2:3 {"prompt":"c?"}`,
		`6 range 3:1 {"prompt":"d?"}`,
	}
	if got := d.prompts(); !slices.Equal(got, want) {
		t.Errorf("its lines are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	ix := input.NewIndex(d.Blobs, d.Docs)
	for line, item := range map[uint64]uint64{1: 3, 3: 5} {
		l, err := ix.LocateLine(t.Context(), id, 2, line)
		if err != nil || l.Shard() != 2+int(line-1)/2 || item-l.FirstItem() > 1 {
			t.Errorf("line %d of range 2 is in shard %d, which begins with item %d, %v", line, l.Shard(), l.FirstItem(), err)
		}
	}
	if _, err := ix.LocateLine(t.Context(), id, 3, 2); !fault.Is(err, fault.NotFound) {
		t.Errorf("a line behind the last: %v", err)
	}
	if old, ok := p.Source(id, 2); !ok || old.Key != record.AppendedKey(id, 2) {
		t.Errorf("input 2 is %+v", old)
	}
}

// TestPrunedShardsHaveNoAnswersToGrowBy grows a plan of which one shard is done without
// a result. Only a record of its variant's pruning lets the plan go on.
func TestPrunedShardsHaveNoAnswersToGrowBy(t *testing.T) {
	t.Parallel()
	d := newGrowing(t, file{text: `{"prompt":"1"}` + "\n" + `{"prompt":"2"}` + "\n" + `{"prompt":"3"}` + "\n"})
	d.submitted()
	d.answer("a", "b")
	s := hosttest.Load[run.State](t, d.Ports, record.CoordinatorKey(id))
	s.NextShard, s.Shards = 2, 2
	s.Done.Set.Add(1)
	hosttest.Save(t, d.Ports, record.CoordinatorKey(id), s)
	again := events.RunSubmitted{Run: string(id)}
	if err := d.Submitted(t.Context(), again); !fault.Is(err, fault.Unavailable) {
		t.Fatalf("a shard without a result: %v", err)
	}
	hosttest.Put(t, d.Ports, record.PrunedKey(id, 0), "{}")
	d.submitted()
	want := []string{`3 range 1:1 {"prompt":"a?"}`, `4 range 1:2 {"prompt":"b?"}`}
	if got := d.prompts(); len(got) != 5 || !slices.Equal(got[3:], want) {
		t.Errorf("its lines are %q, want %q at the end", got, want)
	}
}

func TestRepeatedAndConcurrentGrowthChangesNothing(t *testing.T) {
	t.Parallel()
	for _, last := range []string{"a", "last"} {
		d := newGrowing(t, file{text: `{"prompt":"1"}` + "\n"})
		d.submitted()
		d.answer(last)
		const calls = 3
		var all, growing sync.WaitGroup
		growing.Add(calls)
		k := echo()
		grow := k.Grow
		k.Grow = func(ctx context.Context, g kind.Growth, w io.Writer) error {
			growing.Done()
			growing.Wait() // all calls have read the same plan
			return grow(ctx, g, w)
		}
		for range calls { // processes of their own
			p := plan.New(d.Ports, plan.Options{Kinds: kind.Table{}.With(k)})
			all.Go(func() {
				if err := p.Submitted(t.Context(), events.RunSubmitted{Run: string(id)}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		d.submitted()
		want := map[string]int{"a": 2, "last": 1}[last]
		if p := d.plan(); !p.AllMerged() || p.Sources() != want || p.Items != uint64(want) || p.Growing != (last == "a") {
			t.Errorf("after %q: %+v", last, p)
		}
	}
}

// A crash after the object was created leaves it behind. It stands, also if the kind
// would write something else by now.
func TestWhatWasAppendedFirstStands(t *testing.T) {
	t.Parallel()
	d := newGrowing(t, file{text: `{"prompt":"1"}` + "\n"})
	d.submitted()
	d.answer("a")
	hosttest.Put(t, d.Ports, record.AppendedKey(id, 1), `{"prompt":"first"}`+"\n")
	d.submitted()
	if got := d.prompts(); len(got) != 2 || !strings.HasSuffix(got[1], `{"prompt":"first"}`) {
		t.Errorf("%q", got)
	}
}

// judging is echo, whose first appended object is of that role.
func judging(role string) kind.Kind {
	k := echo()
	k.RoleOf = func(_ context.Context, a kind.Appended) (string, error) {
		if a.Input == len(a.Manifest.Inputs) {
			return role, nil
		}
		return record.RoleAnswer, nil
	}
	return k
}

func newJudging(t *testing.T, role string) *fixture {
	t.Helper()
	d := newGrowing(t, file{text: `{"id":"x","prompt":"1"}` + "\n"})
	d.m = inputtest.WithJudge(d.m)
	hosttest.Save(t, d.Ports, record.ManifestKey(id), d.m)
	d.Planner = plan.New(d.Ports, plan.Options{Kinds: kind.Table{}.With(judging(role))})
	return d
}

func TestKindSaysTheRoleOfWhatItAppends(t *testing.T) {
	t.Parallel()
	d := newJudging(t, "judge")
	// It was written by a call that crashed before it had recorded the role.
	hosttest.Put(t, d.Ports, record.AppendedKey(id, 1), `{"id":"x","prompt":"a?"}`+"\n"+`{"id":"x","prompt":"b?"}`+"\n")
	d.submitted()
	d.answer("a", "b")
	d.submitted()
	if p := d.plan(); !p.AllMerged() || p.Appended.Role != 1 ||
		!slices.Equal(p.Roles, []run.RolePlan{{Shards: 1, Items: 1}, {Shards: 1, Items: 2}}) {
		t.Fatalf("the judged range gives %+v", p)
	}
	d.answer("good", "bad") // answers of the judge, which the next range asks about
	d.submitted()
	p := d.plan()
	if !p.AllMerged() || p.Appended.Role != 0 ||
		!slices.Equal(p.Roles, []run.RolePlan{{Shards: 2, Items: 3}, {Shards: 1, Items: 2}}) {
		t.Errorf("the range after it gives %+v", p)
	}
	ix := input.NewIndex(d.Blobs, d.Docs)
	for n, want := range []uint32{0, 1, 0} {
		if got, err := ix.RoleOf(t.Context(), d.m, n); err != nil || got != want {
			t.Errorf("shard %d has the role %d, %v; want %d", n, got, err, want)
		}
	}
	want := []string{`0 prompts/0.jsonl:1 {"id":"x","prompt":"1"}`, `1 range 1:1 {"id":"x","prompt":"a?"}`,
		`2 range 1:2 {"id":"x","prompt":"b?"}`, `3 range 2:1 {"prompt":"good?"}`, `4 range 2:2 {"prompt":"bad?"}`}
	if got := d.prompts(); !slices.Equal(got, want) {
		t.Errorf("its lines are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	var e record.IndexEntry
	if err := input.ReadJSON(t.Context(), d.Blobs, record.IndexKey(id, 1), &e); err != nil || e.Duplicates != 0 {
		t.Errorf("ids of the judge's items count as duplicates: %+v, %v", e, err)
	}
}

func TestRoleThatTheRunDoesNotHaveIsAProblem(t *testing.T) {
	t.Parallel()
	d := newJudging(t, "critic")
	d.submitted()
	d.answer("a")
	d.submitted()
	if p := d.plan(); p.ProblemKind != record.InputBroken || !strings.Contains(p.Problem, `no role "critic"`) ||
		p.Appended != nil {
		t.Errorf("%+v", p)
	}
}

func TestEndingRunDoesNotGrow(t *testing.T) {
	t.Parallel()
	for _, phase := range []run.Phase{run.Ending, run.Finalizing, run.Stopped} {
		d := newGrowing(t, file{text: `{"prompt":"1"}` + "\n"})
		d.submitted()
		d.answer("a")
		s := hosttest.Load[run.State](t, d.Ports, record.CoordinatorKey(id))
		s.Phase = phase
		hosttest.Save(t, d.Ports, record.CoordinatorKey(id), s)
		d.submitted()
		if p := d.plan(); p.Appended != nil || !p.Growing {
			t.Errorf("%s: %+v", phase, p)
		}
	}
}

func TestProblemOfGrowthIsRecorded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer string
		damage func(d *fixture, d1 shard.Doc)
		kind   record.ProblemKind
	}{
		"the kind refuses an answer": {"nonsense", func(*fixture, shard.Doc) {}, record.InputBroken},
		"a result is damaged": {"a", func(d *fixture, doc shard.Doc) {
			doc.Result.Digest = strings.Repeat("0", 64)
			hosttest.Save(d.t, d.Ports, identity.ShardKey(id, 0), doc)
		}, record.InputBroken},
		"a result is gone": {"a", func(d *fixture, doc shard.Doc) {
			if err := d.Blobs.Delete(d.t.Context(), doc.Result.Key, ""); err != nil {
				d.t.Fatal(err)
			}
		}, record.InputMissing},
	} {
		d := newGrowing(t, file{text: `{"prompt":"1"}` + "\n"})
		d.submitted()
		d.answer(c.answer)
		c.damage(d, hosttest.Load[shard.Doc](t, d.Ports, identity.ShardKey(id, 0)))
		d.submitted()
		if p := d.plan(); p.ProblemKind != c.kind || p.Problem == "" || p.Appended != nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// A document that says less than coordinate knows is read again later.
func TestGrowthWaitsForEveryResult(t *testing.T) {
	t.Parallel()
	d := newGrowing(t, file{text: `{"prompt":"1"}` + "\n"})
	d.submitted()
	s := run.New(id)
	s.Phase, s.NextShard, s.Shards, s.Done.Set = run.Running, 1, 1, interval.Of(interval.Range{Lo: 0, Hi: 1})
	hosttest.Save(t, d.Ports, record.CoordinatorKey(id), s)
	err := d.Submitted(t.Context(), events.RunSubmitted{Run: string(id)})
	if !fault.Is(err, fault.Unavailable) || errors.Is(err, host.ErrNoRun) {
		t.Errorf("%v", err)
	}
	if p := d.plan(); p.Appended != nil || p.Problem != "" {
		t.Errorf("%+v", p)
	}
}
