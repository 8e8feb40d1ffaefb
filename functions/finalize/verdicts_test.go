package finalize_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/functions/finalize"
	"rollout/shared/config"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/host/hosttest"
	"rollout/shared/input"
	"rollout/shared/input/inputtest"
	"rollout/shared/record"
	"rollout/shared/result"
)

// judgedRun is a run of 8 prompts in shards of 2, whose answers a judge reads. Item 3
// failed, item 5 has two answers, and item 6 has no expected value. The judge's 7 items
// are in 4 shards:
//
//	shard 4: 0/0 says 10     1/0 says 0     committed
//	shard 5: 2/0 is cut at 1 4/0 failed     committed
//	shard 6: 5/0 says 5      5/1 no row     sealed with a checkpoint
//	shard 7: 7/0                            never sent
type judgedRun struct {
	fixture
	m record.Manifest
}

func newJudgedRun(t *testing.T) judgedRun {
	t.Helper()
	d := judgedRun{fixture: fixture{t: t, Ports: hosttest.New()}}
	m := inputtest.WithJudge(inputtest.Manifest(2))
	m.Config.Grades = []config.Grade{{Name: "right", Kind: config.GradeRegex, Pattern: "x"},
		{Name: "style", Kind: config.GradeJudge, Expected: "x", Prompt: "{answer} {expected}", Range: []float64{0, 10}}}
	var asked strings.Builder
	for _, ref := range []string{"0/0", "1/0", "2/0", "4/0", "5/0", "5/1", "7/0"} {
		fmt.Fprintf(&asked, `{"id":%q,"messages":[{"role":"user","content":"x"}]}`+"\n", ref)
	}
	m = inputtest.Plan(t, d.Ports, m, inputtest.Prompts(0, 8), asked.String())
	// What the judge is asked is appended, and no input.
	p := hosttest.Load[record.Plan](t, d.Ports, record.PlanKey(id))
	p.Appended = &record.Appended{Ranges: p.Ranges[1], Input: 1, First: 1}
	p.Ranges, m.Inputs = p.Ranges[:1], m.Inputs[:1]
	hosttest.Save(t, d.Ports, record.PlanKey(id), p)
	hosttest.Save(t, d.Ports, record.ManifestKey(id), m)
	d.m = m
	d.commit(0, []result.Row{d.answer(0, "x", 1), d.answer(1, "x", 1)})
	d.commit(1, []result.Row{d.answer(2, "y", 1), d.failed(3, fault.Refused, dialect.Plain)})
	d.commit(2, []result.Row{d.answer(4, "x", 1), d.answer(5, "x", 2)})
	d.commit(3, []result.Row{d.answer(6, "x", 1), d.answer(7, "x", 1)})
	d.commit(4, []result.Row{said(0, "0/0", "10"), said(1, "1/0", " 0.")})
	cut := result.Row{Bytes: []byte(`{"id":"2/0","completion":"1","finish_reason":"length"}` + "\n")}
	d.commit(5, []result.Row{cut, d.failed(11, fault.Engine, dialect.Plain)})
	d.seal(6, []result.Row{said(0, "5/0", "5")})
	s := state(run.Finalizing, 7)
	s.Shards, s.Items, s.NextShard, s.FrozenFrontier = 8, 15, 7, 7
	s.Done.Set = interval.Of(interval.Range{Lo: 0, Hi: 7})
	s.Roles = []run.RoleState{{RolePlan: run.RolePlan{Shards: 4, Items: 8}}, {RolePlan: run.RolePlan{Shards: 4, Items: 7}}}
	hosttest.Save(t, d.Ports, record.CoordinatorKey(id), s)
	return d
}

// answer is the row of an answered item, as a worker makes it.
func (d judgedRun) answer(item int, text string, answers int) result.Row {
	right := grade.Score{}
	if text == "x" {
		right.Value = 1
	}
	style := grade.Missing(grade.Open)
	if item == 6 {
		style = grade.Missing(grade.NoExpected)
	}
	scores := make([][]grade.Score, answers)
	for k := range scores {
		scores[k] = []grade.Score{right, style}
	}
	b := fmt.Appendf(nil, `{"id":"p%d","completion":%q,`, item, text)
	b = append(grade.AppendMembers(b, d.m.Config.Grades, scores), `,"input_score":"mine"}`+"\n"...)
	return result.Row{Item: item % 2, Bytes: b}
}

// failed is the error row of an item; of a judge's item 4/0, which is item 11.
func (d judgedRun) failed(item uint64, c fault.Class, name dialect.Name) result.Row {
	f := dialect.Failure{ID: fmt.Sprintf("p%d", item), Place: dialect.Place{Item: item, File: "x", Line: 1}, Class: c}
	if item == 11 {
		f.ID = "4/0"
	}
	return result.Row{Item: int(item) % 2, Class: c, Bytes: dialect.AppendError(nil, name, f)}
}

// said is the row of a judge's item.
func said(item int, ref, text string) result.Row {
	return result.Row{Item: item, Bytes: fmt.Appendf(nil, `{"id":%q,"completion":%q}`+"\n", ref, text)}
}

func TestJudgesScoresStandInTheRowsThatTheyAreAbout(t *testing.T) {
	t.Parallel()
	row := func(item int, text, mean, right, style, more string) string {
		return fmt.Sprintf(`{"id":"p%d","completion":%q,"score":%s,"scores":{"right":{"score":%s},"style":%s}%s,`+
			`"input_score":"mine"}`+"\n", item, text, mean, right, style, more)
	}
	none := func(cause string) string { return `{"score":null,"cause":"` + cause + `"}` }
	want := row(0, "x", "1", "1", `{"score":1}`, "") +
		row(1, "x", "0.5", "1", `{"score":0}`, "") +
		row(2, "y", "null", "0", none("unparseable"), "") +
		row(4, "x", "null", "1", none("judge_failed"), "") +
		row(5, "x", "null", "1", none("stopped"), `,"answer_scores":[{"score":0.75,"scores":{"right":{"score":1},`+
			`"style":{"score":0.5}}},{"score":null,"scores":{"right":{"score":1},"style":`+none("stopped")+`}}]`) +
		row(6, "x", "null", "1", none("no_expected"), "") +
		row(7, "x", "null", "1", none("stopped"), "")
	for name, s := range map[string]*finalize.SegmentOptions{
		"one stream": nil, "small segments": {StreamBelow: 1, MinBytes: 1},
		"segments": {StreamBelow: 1, MinBytes: 1 << 20, MaxShards: 3},
	} {
		d := newJudgedRun(t)
		f := finalize.New(d.Ports, input.NewIndex(d.Blobs, d.Docs), finalize.Options{Segments: s})
		handleAll(t, d.Ports, f)
		if diff := cmp.Diff(want, d.file(record.CompletionsFile)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		var sum record.Summary
		if err := input.ReadJSON(t.Context(), d.Blobs, record.OutputKey(id, record.SummaryFile), &sum); err != nil {
			t.Fatal(err)
		}
		style := sum.Scores["style"]
		causes := map[grade.Cause]uint64{"unparseable": 1, "judge_failed": 1, "stopped": 2, "no_expected": 1}
		if *style.Mean != 0.5 || style.Scored != 2 || cmp.Diff(causes, style.MissingByCause) != "" ||
			sum.Score.Scored != 2 || *sum.Score.Mean != 0.75 {
			t.Errorf("%s: the summary has %+v and %+v", name, style, sum.Score)
		}
		if r := sum.Roles[1]; r.Items != 7 || r.Completed != 4 || r.Failed != 3 {
			t.Errorf("%s: the summary counts %+v", name, r)
		}
	}
}

// A run that ended before its judge was asked has open scores.
func TestScoresStayOpenWithoutAJudgesItems(t *testing.T) {
	t.Parallel()
	d := newJudgedRun(t)
	p := hosttest.Load[record.Plan](t, d.Ports, record.PlanKey(id))
	p.Appended, p.Merged, p.Total, p.Shards, p.Items = nil, 1, 1, 4, 8
	hosttest.Save(t, d.Ports, record.PlanKey(id), p)
	s := hosttest.Load[run.State](t, d.Ports, record.CoordinatorKey(id))
	s.Shards, s.Items, s.NextShard, s.FrozenFrontier, s.Roles = 4, 8, 4, 4, nil
	s.Done.Set = interval.Of(interval.Range{Lo: 0, Hi: 4})
	hosttest.Save(t, d.Ports, record.CoordinatorKey(id), s)
	if err := d.finalize(); err != nil {
		t.Fatal(err)
	}
	if got := d.file(record.CompletionsFile); strings.Count(got, `"style":{"score":null,"cause":"stopped"}`) != 8 ||
		strings.Count(got, "\n") != 7 {
		t.Errorf("the rows are\n%s", got)
	}
}

// A row of a judge's shard that says nothing about an answer ends no run with a score
// that is made up.
func TestDamagedVerdictsAreCorrupt(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(judgedRun){
		"no id":         func(d judgedRun) { d.commit(4, []result.Row{said(0, "", "1"), said(1, "1/0", "1")}) },
		"another's id":  func(d judgedRun) { d.commit(4, []result.Row{said(0, "p0", "1"), said(1, "1/0", "1")}) },
		"a row too few": func(d judgedRun) { d.commit(4, []result.Row{said(0, "0/0", "1")}) },
		"no completion": func(d judgedRun) {
			d.commit(4, []result.Row{said(0, "0/0", "1"), {Item: 1, Bytes: []byte(`{"id":"1/0"}` + "\n")}})
		},
		"no scores": func(d judgedRun) {
			d.commit(0, []result.Row{{Item: 0, Bytes: []byte("{}\n")}, d.answer(1, "x", 1)})
		},
	} {
		d := newJudgedRun(t)
		damage(d)
		if err := d.finalize(); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %v, want Corrupt", name, err)
		}
	}
}
