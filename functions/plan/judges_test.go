package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"rollout/events"
	"rollout/functions/plan"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/host"
	"rollout/shared/host/hosttest"
	"rollout/shared/kind"
	"rollout/shared/record"
	"rollout/shared/result"
)

// newJudged returns a planner of a batch whose answers the judges read.
func newJudged(t *testing.T, judges []config.Grade, files ...file) *fixture {
	t.Helper()
	d := newFixture(t, 2, files...)
	for _, g := range judges {
		g.Kind, g.Prompt, g.Range = config.GradeJudge, "{prompt}{answer}{expected}", []float64{0, 1}
		d.m.Config.Grades = append(d.m.Config.Grades, g)
	}
	deploy := config.Deployment{Pools: []config.Pool{{Name: "default", Model: "mock"}, {Name: "judges", Model: "wise"}}}
	d.m.Config.Model.URI = "mock"
	k, err := kind.Table{}.Of(config.KindBatch)
	if err == nil {
		d.m.Roles, err = k.ResolveRoles(d.m.Config, d.m.ModelURI, deploy)
	}
	if err != nil {
		t.Fatal(err)
	}
	hosttest.Save(t, d.Ports, record.ManifestKey(id), d.m)
	d.Planner = plan.New(d.Ports, plan.Options{})
	return d
}

// commit commits the next shard of the run.
func (d *fixture) commit(rows ...result.Row) {
	d.t.Helper()
	s := run.New(id)
	if _, _, err := host.Load(d.t.Context(), d.Docs, record.CoordinatorKey(id), &s); err != nil {
		d.t.Fatal(err)
	}
	n := s.NextShard
	body, out := result.Append(nil, rows)
	key := record.ShardObjectKey(id, n, 1, "x")
	hosttest.Put(d.t, d.Ports, key, string(body))
	doc := shard.New(id, n)
	doc.State, doc.OutputLen = shard.Done, out
	doc.Result = &shard.Ref{Key: key, Length: int64(len(body)), Digest: identity.Content(body).String()}
	hosttest.Save(d.t, d.Ports, identity.ShardKey(id, n), doc)
	s.Phase, s.NextShard, s.Shards = run.Running, n+1, n+1
	if _, _, err := s.Done.Add(n, s.NextShard); err != nil {
		d.t.Fatal(err)
	}
	hosttest.Save(d.t, d.Ports, record.CoordinatorKey(id), s)
}

// answered is the row of an item that was answered with the text. Each judge's score is
// open unless its name is among those without an expected value.
func (d *fixture) answered(item int, text string, without ...string) result.Row {
	var scores []grade.Score
	for _, g := range d.m.Config.Grades {
		s := grade.Missing(grade.Open)
		if slices.Contains(without, g.Name) {
			s = grade.Missing(grade.NoExpected)
		}
		scores = append(scores, s)
	}
	b := fmt.Appendf(nil, `{"id":"x","completion":%q,`, text)
	return result.Row{Item: item, Bytes: append(grade.AppendMembers(b, d.m.Config.Grades, [][]grade.Score{scores}),
		"}\n"...)}
}

func (d *fixture) failed(item int, index uint64) result.Row {
	f := dialect.Failure{Place: dialect.Place{Item: index, File: "x", Line: 1}, Class: fault.Engine}
	return result.Row{Item: item, Class: fault.Engine, Bytes: dialect.AppendError(nil, dialect.Plain, f)}
}

// judgeLines are the lines of an appended input.
func (d *fixture) judgeLines(input int) []string {
	return strings.Split(strings.TrimSpace(hosttest.Object(d.t, d.Ports, record.AppendedKey(id, input))), "\n")
}

func wantLines(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func line(ref, text string) string {
	return fmt.Sprintf(`{"id":%q,"messages":[{"role":"user","content":%q}]}`, ref, text)
}

// Each judge reads the answers of the inputs, not what the judge before it said. One
// that reads none keeps no other from reading.
func TestPlanGrowsByWhatEachJudgeReads(t *testing.T) {
	t.Parallel()
	judges := []config.Grade{{Name: "first"}, {Name: "none", Expected: "y"}, {Name: "last", Expected: "x", Model: "wise"}}
	d := newJudged(t, judges, file{text: `{"prompt":"a","x":1}` + "\nno json\n" + `{"prompt":"b"}` + "\n"},
		file{text: `{"prompt":"c","x":"3"}` + "\n"})
	d.submitted()
	if p := d.plan(); !p.AllMerged() || p.Complete() || p.Shards != 3 {
		t.Fatalf("the inputs give %+v", p)
	}
	d.commit(d.answered(0, "A", "none"), d.failed(1, 1))
	d.commit(d.answered(0, "B", "none", "last"))
	d.submitted()
	if p := d.plan(); p.Appended != nil {
		t.Fatalf("a judge is asked before the last answer is there: %+v", p)
	}
	d.commit(d.answered(0, "C", "none"))
	answers := d.plan().Shards
	d.submitted()
	wantLines(t, d.judgeLines(2), line("0/0", "aA"), line("2/0", "bB"), line("3/0", "cC"))
	p := d.plan()
	if p.Roles[1].Items != 3 || p.Appended.Role != 1 || p.Shards != answers+2 {
		t.Errorf("with the first judge: %+v", p)
	}
	madeFrom := p.Appended.MadeFrom
	for range 2 {
		d.commit(result.Row{Item: 0, Bytes: []byte(`{"id":"x","completion":"1"}` + "\n")})
	}
	d.submitted()
	if p := d.plan(); p.Appended.Input != 3 || p.Appended.Size != 0 || p.Complete() || p.Shards != answers+2 {
		t.Errorf("with a judge that reads none: %+v", p)
	}
	d.submitted()
	wantLines(t, d.judgeLines(4), line("0/0", "aA1"), line("3/0", "cC3"))
	if p := d.plan(); p.Appended.Role != 3 || p.Roles[3].Items != 2 || p.Appended.MadeFrom != madeFrom ||
		!p.Complete() || p.Sources() != 5 {
		t.Errorf("with the last judge: %+v, want it complete and made from %s", p, madeFrom)
	}
}

func TestABatchWithoutAJudgeDoesNotGrow(t *testing.T) {
	t.Parallel()
	d := newJudged(t, nil, file{text: `{"prompt":"a"}` + "\n"})
	d.submitted()
	if p := d.plan(); !p.Complete() || p.Growing {
		t.Errorf("%+v", p)
	}
}

// A shard that counts as done has its result at once; without it, the plan is asked for
// again.
func TestAJudgeWaitsForEveryResult(t *testing.T) {
	t.Parallel()
	d := newJudged(t, []config.Grade{{Name: "first"}}, file{text: `{"prompt":"a"}` + "\n"})
	d.submitted()
	d.commit(d.answered(0, "A"))
	hosttest.Save(t, d.Ports, identity.ShardKey(id, 0), shard.New(id, 0))
	if err := d.Submitted(t.Context(), events.RunSubmitted{Run: string(id)}); !fault.Is(err, fault.Unavailable) {
		t.Errorf("%v, want Unavailable", err)
	}
	if p := d.plan(); p.Appended != nil || p.ProblemKind != "" {
		t.Errorf("the plan is %+v", p)
	}
}

// A judge of a run whose rows are damaged, or say other things than their run's config,
// is not asked.
func TestAnswersThatNoJudgeCanReadEndTheRun(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]string{
		"no scores": `{"completion":"x"}`, "no answer": `{"scores":{"first":{"score":null,"cause":"stopped"}}}`,
		"another grader": `{"completion":"x","scores":{"other":{"score":1}}}`, "no JSON": `{`,
	} {
		d := newJudged(t, []config.Grade{{Name: "first"}}, file{text: `{"prompt":"a"}` + "\n"})
		d.submitted()
		d.commit(result.Row{Item: 0, Bytes: []byte(row + "\n")})
		d.submitted()
		if p := d.plan(); p.ProblemKind != record.InputBroken {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
