package grade_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/grade"
)

func score(x float64) grade.Score { return grade.Score{Value: x} }

func weighing(w float64) *float64 { return &w }

func TestRowsHaveScoresAndTheirMean(t *testing.T) {
	t.Parallel()
	graders := []config.Grade{{Name: "correct", Weight: weighing(3)}, {Name: "style"},
		{Name: "length", Weight: weighing(0)}}
	late := grade.Missing(grade.TimedOut)
	for name, c := range map[string]struct {
		answers [][]grade.Score
		want    string
	}{
		"all scores": {[][]grade.Score{{score(1), score(0.5), score(7)}},
			`"score":0.875,"scores":{"correct":{"score":1},"style":{"score":0.5},"length":{"score":7}}`},
		"a missing one": {[][]grade.Score{{score(1), late, score(7)}},
			`"score":null,"scores":{"correct":{"score":1},"style":{"score":null,"cause":"timeout"},"length":{"score":7}}`},
		"a missing one without weight": {[][]grade.Score{{score(0), score(0), late}},
			`"score":0,"scores":{"correct":{"score":0},"style":{"score":0},"length":{"score":null,"cause":"timeout"}}`},
		"two answers": {[][]grade.Score{{score(1), score(0), score(2)}, {score(0), score(1), score(4)}},
			`"score":0.5,"scores":{"correct":{"score":0.5},"style":{"score":0.5},"length":{"score":3}},` +
				`"answer_scores":[{"score":0.75,"scores":{"correct":{"score":1},"style":{"score":0},"length":{"score":2}}},` +
				`{"score":0.25,"scores":{"correct":{"score":0},"style":{"score":1},"length":{"score":4}}}]`},
		"two answers, one missing": {[][]grade.Score{{score(1), late, score(2)}, {score(0), score(1), score(4)}},
			`"score":null,"scores":{"correct":{"score":0.5},"style":{"score":null,"cause":"timeout"},"length":{"score":3}},` +
				`"answer_scores":[{"score":null,"scores":{"correct":{"score":1},"style":{"score":null,"cause":"timeout"},` +
				`"length":{"score":2}}},{"score":0.25,"scores":{"correct":{"score":0},"style":{"score":1},"length":{"score":4}}}]`},
	} {
		if got := string(grade.AppendMembers(nil, graders, c.answers)); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
}

func TestReadRowRefusesRowsWithoutScores(t *testing.T) {
	t.Parallel()
	for _, row := range []string{
		``, `{}`, `{"score":1}`, `{"score":"high","scores":{}}`, `{"scores":[]}`, `{"score":1,"scores":{"a":1}}`, `{"scores"`,
	} {
		if r, err := grade.ReadRow([]byte(row)); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %+v, %v, want Corrupt", row, r, err)
		}
	}
}

// TestTotalsDoNotDependOnTheOrder reads rows that were written, sums them up in
// parts and in another order, through JSON, and compares with one sum.
func TestTotalsDoNotDependOnTheOrder(t *testing.T) {
	t.Parallel()
	graders := []config.Grade{{Name: "a"}, {Name: "b", Weight: weighing(0.3)}}
	causes := []grade.Cause{grade.TimedOut, grade.Refused, grade.NoExpected}
	outcome := rapid.Custom(func(t *rapid.T) grade.Score {
		if rapid.IntRange(0, 3).Draw(t, "missing") == 0 {
			return grade.Missing(rapid.SampledFrom(causes).Draw(t, "cause"))
		}
		return score(float64(rapid.Int64Range(-1e15, 1e15).Draw(t, "score")) / 7e9)
	})
	rapid.Check(t, func(t *rapid.T) {
		rows := make([]grade.Row, rapid.IntRange(0, 40).Draw(t, "rows"))
		var whole, parts grade.Totals
		wantScored, wantSum := 0, 0.0
		for i := range rows {
			scores := []grade.Score{outcome.Draw(t, "a"), outcome.Draw(t, "b")}
			text := append(grade.AppendMembers([]byte{'{'}, graders, [][]grade.Score{scores}), '}')
			var err error
			if rows[i], err = grade.ReadRow(text); err != nil {
				t.Fatal(err)
			}
			if w, ok := grade.Weighted(graders, scores); ok != (rows[i].Score != nil) || ok && *rows[i].Score != w {
				t.Fatalf("%s has not the score %v, %v", text, w, ok)
			}
			if scores[0].Cause == "" {
				wantScored++
				wantSum += scores[0].Value
			}
			whole.Add(rows[i])
		}
		for _, i := range rand.Perm(len(rows)) {
			var part grade.Totals
			part.Add(rows[i])
			b, err := json.Marshal(part)
			if err != nil {
				t.Fatal(err)
			}
			var read grade.Totals
			if err := json.Unmarshal(b, &read); err != nil {
				t.Fatal(err)
			}
			parts.Join(read)
		}
		if got, want := describe(parts), describe(whole); got != want {
			t.Fatalf("totals of parts %s, want %s", got, want)
		}
		a := whole.Graders["a"]
		if int(a.Scored) != wantScored || int(a.Scored+a.MissingCount()) != len(rows) {
			t.Fatalf("%d rows, %d with a score, counted as %+v", len(rows), wantScored, a)
		}
		if wantScored > 0 {
			if d := *a.Mean() - wantSum/float64(wantScored); d > 1e-3 || d < -1e-3 {
				t.Fatalf("mean %v, want %v", *a.Mean(), wantSum/float64(wantScored))
			}
		}
	})
}

// describe returns the means and counts of totals as text.
func describe(t grade.Totals) string {
	b, err := json.Marshal(t)
	if err != nil {
		panic(err)
	}
	out := string(b)
	for _, name := range []string{"a", "b"} {
		if m := t.Graders[name].Mean(); m != nil {
			out += fmt.Sprintf(" %s=%v", name, *m)
		}
	}
	return out
}

func TestMeanOfNothingIsNone(t *testing.T) {
	t.Parallel()
	var totals grade.Totals
	totals.Add(grade.Row{Scores: map[string]grade.RowScore{"a": {Cause: grade.Refused}}})
	want := map[grade.Cause]uint64{grade.Refused: 1}
	if a := totals.Graders["a"]; a.Mean() != nil || cmp.Diff(want, a.Missing) != "" {
		t.Errorf("%+v has the mean %v", a, a.Mean())
	}
}

func TestLookupFollowsPaths(t *testing.T) {
	t.Parallel()
	line := []byte(`{"answer":"a","meta":{"answers":["x",{"y":2}],"none":null,"0":"zero"},"list":[1,2]}`)
	for path, want := range map[string]string{
		"answer": `"a"`, "meta.answers": `["x",{"y":2}]`, "meta.answers.0": `"x"`, "meta.answers.1.y": `2`, "list.1": `2`,
		"meta.0": `"zero"`, "meta.none": "", "missing": "", "meta.answers.2": "", "answer.x": "", "list.-1": "",
		"list.x": "", "meta.answers.0.x": "",
	} {
		if got := string(grade.Lookup(line, path)); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// TestScoresThatAreReadAndReplacedStayInTheirRow draws rows with scores, and replaces some
// of them.
func TestScoresThatAreReadAndReplacedStayInTheirRow(t *testing.T) {
	t.Parallel()
	graders := []config.Grade{{Name: "a"}, {Name: "b", Weight: weighing(0.5)}, {Name: "c", Weight: weighing(0)}}
	outcome := rapid.Custom(func(t *rapid.T) grade.Score {
		if rapid.Bool().Draw(t, "missing") {
			return grade.Missing(grade.Open)
		}
		return score(rapid.Float64Range(-1e300, 1e300).Draw(t, "score"))
	})
	rapid.Check(t, func(t *rapid.T) {
		draw := func(answers int) [][]grade.Score {
			all := make([][]grade.Score, answers)
			for k := range all {
				for range graders {
					all[k] = append(all[k], outcome.Draw(t, "score"))
				}
			}
			return all
		}
		answers := rapid.IntRange(1, 4).Draw(t, "answers")
		with := func(scores [][]grade.Score) string {
			return `{"id":"x","completion":"\u00e9\"",` + string(grade.AppendMembers(nil, graders, scores)) +
				`,"input_score":[1e2, {"scores":1}],"tag":null}` + "\n"
		}
		before, after := draw(answers), draw(answers)
		got, err := grade.ReadScores([]byte(with(before)), graders)
		if d := cmp.Diff(before, got); d != "" || err != nil {
			t.Fatalf("%v (-want +got)\n%s", err, d)
		}
		row := string(grade.AppendRescored([]byte("before\n"), []byte(with(before)), graders, after))
		if row != "before\n"+with(after) {
			t.Fatalf("%s, want %s", row, with(after))
		}
	})
}

func TestReadScoresRefusesOtherRows(t *testing.T) {
	t.Parallel()
	graders := []config.Grade{{Name: "a"}}
	for _, row := range []string{``, `{}`, `{"scores"`, `{"scores":[]}`, `{"scores":{"b":{"score":1}}}`,
		`{"scores":{"a":{}}}`, `{"scores":{"a":{"score":1,"cause":"stopped"}}}`,
		`{"scores":{"a":{"score":1}},"answer_scores":1}`,
		`{"scores":{"a":{"score":1}},"answer_scores":[{}]}`, `{"scores":{"a":{"score":1}}`} {
		if got, err := grade.ReadScores([]byte(row), graders); !fault.Is(err, fault.Corrupt) {
			t.Errorf("%s: %+v, %v, want Corrupt", row, got, err)
		}
	}
}
