package command_test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"rollout/scripts/rollout/compare"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/dialect"
	"rollout/shared/host/hosttest"
	"rollout/shared/record"
)

// addAnswers stores an ended run of one input with these answers, in the order of ids from a.
func (f fixture) addAnswers(id identity.RunID, answers ...string) {
	f.t.Helper()
	f.addEndedRun(id, run.Completed)
	m := hosttest.Load[record.Manifest](f.t, f.Ports, record.ManifestKey(id))
	m.Dialect = string(dialect.Plain)
	f.save(record.ManifestKey(id), m)
	var rows strings.Builder
	for n, answer := range answers {
		b, err := json.Marshal(map[string]any{"id": string(rune('a' + n)), "completion": answer, "finish_reason": "stop",
			"usage": map[string]int{"prompt_tokens": 1, "completion_tokens": len(answer)}})
		if err != nil {
			f.t.Fatal(err)
		}
		rows.WriteString(string(b) + "\n")
	}
	n := uint64(len(answers))
	f.put(record.OutputKey(id, record.CompletionsFile), rows.String())
	f.put(record.OutputKey(id, record.ErrorsFile), "")
	f.put(record.OutputKey(id, record.SummaryFile),
		string(record.Encode(record.Summary{Schema: record.Schema, Run: id, Items: n, Completed: n}))+"\n")
}

func TestCompareShowsWhatDiffers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addAnswers(runA, "yes", "no", "maybe\nor \x1b[31mnot")
	f.addAnswers(runB, "yes", "never", "maybe")
	m := hosttest.Load[record.Manifest](t, f.Ports, record.ManifestKey(runB))
	m.Config.Sampling.Temperature, m.Config.Sampling.Stop = new(0.5), []string{"\x1b[31m"}
	f.save(record.ManifestKey(runB), m)
	out := f.rollout("compare", string(runA), string(runB))
	if line := regexp.MustCompile(`(?m)^sampling\.temperature +- +0\.5$`); !line.MatchString(out.out) ||
		!strings.Contains(out.out, "sampling.stop") || strings.Contains(out.out, "\x1b[31m") {
		t.Errorf("the table has not the settings that differ:\n%s", out.out)
	}
	for _, want := range []string{"3 items in both runs, matched by", "of 3 pairs of answers, 1 (33%) are the same",
		string(runA), "mean characters"} {
		if out.code != 0 || !strings.Contains(out.out, want) {
			t.Errorf("the table lacks %q: %+v", want, out)
		}
	}
	out = f.rollout("compare", string(runA), string(runB), "--format", "jsonl")
	var pair struct {
		ID   string
		A, B struct{ Answers []string }
	}
	first, _, _ := strings.Cut(out.out, "\n")
	if err := json.Unmarshal([]byte(first), &pair); err != nil || strings.Count(out.out, "\n") != 2 || pair.ID != "b" ||
		pair.A.Answers[0] != "no" || pair.B.Answers[0] != "never" {
		t.Errorf("%+v, %v", out, err)
	}
	out = f.rollout("compare", string(runA), string(runB), "--format", "side", "-n", "5")
	if !strings.Contains(out.out, "item 1 (b)\nno") || !strings.Contains(out.out, "│ never\n") ||
		strings.Contains(out.out, "item 0") || strings.Contains(out.out, "\x1b") {
		t.Errorf("side by side: %s", out.out)
	}
	one := f.rollout("compare", string(runA), string(runB), "--format", "side", "-n", "1")
	if n := strings.Count(one.out, "item "); n != 1 {
		t.Errorf("%d items with --limit 1", n)
	}
	var totals struct{ Items, Same, Differ int }
	out = f.rollout("compare", string(runA), string(runB), "--json")
	err := json.Unmarshal([]byte(out.out), &totals)
	if err != nil || totals.Items != 3 || totals.Same != 1 || totals.Differ != 2 {
		t.Errorf("%+v, %v", out, err)
	}
}

// addScores stores an ended run whose answers have these scores.
func (f fixture) addScores(id identity.RunID, scores ...float64) {
	f.t.Helper()
	f.addAnswers(id, make([]string, len(scores))...)
	m := hosttest.Load[record.Manifest](f.t, f.Ports, record.ManifestKey(id))
	m.Config.Grades = []config.Grade{{Name: "right", Kind: config.GradeExact}}
	f.save(record.ManifestKey(id), m)
	var rows strings.Builder
	for n, score := range scores {
		const row = `{"id":"%d","completion":"x","finish_reason":"stop","score":%v,"scores":{"right":{"score":%v}}}` + "\n"
		fmt.Fprintf(&rows, row, n, score, score)
	}
	f.put(record.OutputKey(id, record.CompletionsFile), rows.String())
}

func TestCompareSaysWhetherChanceExplainsTheScores(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		a, b []float64
		want string
		p    float64
	}{
		"clear": {[]float64{0, 0, 0, 0, 0, 0, 0, 1, 0}, []float64{1, 1, 1, 1, 1, 1, 1, 1, 0},
			"The scores of the second run are higher by 0.7778 on average (95% interval: 0.4388 to 1.0000; McNemar's exact " +
				"test: P =\n0.016). Chance alone seldom gives such a difference.\n", 1.0 / 64},
		"not clear": {[]float64{1, 0.5, 1, 0}, []float64{0.5, 0.5, 0.5, 0.25},
			"The scores of the second run are lower by 0.1875 on average (95% interval: -0.4092 to 0.7842; " +
				"paired t-test: P = 0.39).\n" +
				"Chance alone gives such a difference in 39 of 100 cases. With 4 items, one below 0.7802 is easily missed.\n",
			0.39},
		"equal": {[]float64{1, 0}, []float64{1, 0}, "\nEach item has the same score in both runs.\n", 1},
		"alike": {[]float64{0, 0, 0}, []float64{1, 1, 1}, "\nThe scores of the second run are higher by 1.0000 on average " +
			"(McNemar's exact test: P = 0.25). Chance alone gives such a\ndifference in 25 of 100 cases.\n", 0.25},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.addScores(runA, c.a...)
			f.addScores(runB, c.b...)
			if out := f.rollout("compare", string(runA), string(runB)); out.code != 0 || !strings.HasSuffix(out.out, c.want) {
				t.Errorf("code %d:\n%s\nwant at its end:\n%s", out.code, out.out, c.want)
			}
			var totals compare.Totals
			out := f.rollout("compare", string(runA), string(runB), "--json")
			if err := json.Unmarshal([]byte(out.out), &totals); err != nil || totals.Gain == nil ||
				math.Abs(*totals.Gain.P-c.p) > 0.01 {
				t.Errorf("%v: the totals are %s", err, out.out)
			}
		})
	}
}

func TestCompareRefuses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addAnswers(runA, "yes")
	f.addRun(runB, "going", 0, run.Running)
	f.addEndedRun(runC, run.Completed)
	const other identity.RunID = "01JD2ZQ4T5W0M1X9YB7R3K8CVH"
	f.addAnswers(other, "yes")
	for want, args := range map[string][]string{
		"RUN is missing":                    {string(runA)},
		"has not ended: it is running":      {string(runA), "going"},
		"has no summary":                    {string(runA), string(runC)},
		`there is no run "typo"`:            {"typo", string(runA)},
		"are the same run, " + string(runA): {string(runA), string(runA)},
		"use table, jsonl or side":          {string(runA), string(runA), "--format", "html"},
		"use it without --format jsonl":     {string(runA), string(runA), "--json", "--format", "jsonl"},
		"use 0 or more":                     {string(runA), string(runA), "-n", "-1"},
		"use index or id":                   {string(runA), string(other), "--by", "name"},
	} {
		r := f.rollout(append([]string{"compare"}, args...)...)
		if r.code == 0 || r.out != "" || !strings.Contains(r.err, want) {
			t.Errorf("%v: %+v, want %q", args, r, want)
		}
	}
}

func TestResultsOfAnOpenRunArePartial(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addRun(runB, "going", 0, run.Paused)
	s := run.New(runB)
	s.Phase = run.Paused
	f.save(record.CoordinatorKey(runB), s)
	check(t, f.rollout("results", "going", "--partial"), 0, "",
		"the run is paused: these are the rows of its first 0 items")
	check(t, f.rollout("results", "going", "--partial", "-o", t.TempDir()), 2, "", "write one file, but --output")
	path := filepath.Join(t.TempDir(), "x.jsonl")
	check(t, f.rollout("results", "going", "--partial", "-o", path), 0, "", "first 0 items")
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	check(t, f.rollout("results", "going", "--partial", "-o", path), 2, "", "already exists")
	f.addAnswers(runA, "yes")
	whole := f.rollout("results", string(runA))
	for _, flag := range []string{"--partial", "--follow"} {
		if r := f.rollout("results", string(runA), flag); r.code != 0 || r.out != whole.out || r.out == "" {
			t.Errorf("%s of a run that has ended: %+v, want %q", flag, r, whole.out)
		}
	}
}

func TestShowRefuses(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addWholeRun()
	check(t, f.rollout("show", "nightly"), 2, "", "ITEM is missing")
	check(t, f.rollout("show", "nightly", "77"), 1, "", "has no item #77")
	check(t, f.rollout("show", "typo", "1"), 1, "", `there is no run "typo"`)
}

func TestShowPrintsAnItem(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.addWholeRun()
	row := `{"id":"x","completion":"an answer\n\u001b[31mred","finish_reason":"stop",` +
		`"generated_at":"2026-03-01T12:00:00Z","usage":{"prompt_tokens":3,"completion_tokens":2}}`
	f.put(record.OutputKey(runA, record.ErrorsFile), "")
	var shown struct {
		ItemID  string `json:"item_id"`
		Request struct{ Body struct{ Prompt string } }
	}
	r := f.rollout("show", "nightly", "1", "--json")
	if err := json.Unmarshal([]byte(r.out), &shown); err != nil || shown.Request.Body.Prompt != "1" {
		t.Fatalf("%+v, %v", r, err)
	}
	f.put(record.OutputKey(runA, record.CompletionsFile), strings.Replace(row, `"x"`, `"`+shown.ItemID+`"`, 1)+"\n")
	r = f.rollout("show", "nightly", "1")
	for _, want := range []string{"item 1 of run " + string(runA) + " (nightly)", "request (completion):", `"prompt": "1"`,
		"answer (stop):\n  an answer\n", "red", "3 prompt, 2 completion"} {
		if r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("it lacks %q: %+v", want, r)
		}
	}
	if strings.Contains(r.out, "\x1b") {
		t.Errorf("it has an escape sequence: %q", r.out)
	}
}
