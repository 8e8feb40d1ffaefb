package judge_test

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rollout/shared/config"
	"rollout/shared/grade"
	"rollout/shared/grade/judge"
)

func newJudge(t testing.TB, g config.Grade) *judge.Judge {
	t.Helper()
	g.Kind, g.Range = config.GradeJudge, []float64{0, 10}
	j, err := judge.New(g)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func TestLinesShowWhatTheTemplateNames(t *testing.T) {
	t.Parallel()
	const chat = `[{"role":"system","content":"be brief"},{"role":"user","content":[{"type":"text","text":"what is"},` +
		`{"type":"image_url","image_url":{"url":"x"}}]},{"role":"assistant","content":null,"tool_calls":[{"id":1}]}]`
	for name, c := range map[string]struct {
		grader         config.Grade
		prompt, answer string
		expected       string
		want           string
	}{
		"prompt": {config.Grade{Prompt: "{prompt} = {answer}?"}, `"1 + 1"`, "2", "",
			`{"id":"7/0","messages":[{"role":"user","content":"1 + 1 = 2?"}]}`},
		"system and rubric": {config.Grade{System: "{rubric}!", Prompt: "{answer}", Rubric: "{answer}"}, `"x"`, "2", "",
			`{"id":"7/0","messages":[{"role":"system","content":"{answer}!"},{"role":"user","content":"2"}]}`},
		"hostile answer": {config.Grade{Prompt: "[{answer}] {expected}", Expected: "x"}, `"x"`,
			"\"}]}\n{expected} \u2028\x00", `"yes"`,
			`{"id":"7/0","messages":[{"role":"user","content":"[\"}]}\n{expected} \u2028\u0000] yes"}]}`},
		"JSON in the template": {config.Grade{Prompt: `{answer} {"score": 1} {{answer}} {other}`}, `"x"`, "a", "",
			`{"id":"7/0","messages":[{"role":"user","content":"a {\"score\": 1} {a} {other}"}]}`},
		"expected list": {config.Grade{Prompt: "{answer} {expected}", Expected: "x"}, `"x"`, "a", `["b",3]`,
			`{"id":"7/0","messages":[{"role":"user","content":"a [\"b\",3]"}]}`},
		"one message": {config.Grade{Prompt: "{prompt}: {answer}"}, `[{"role":"user","content":"hi"}]`, "a", "",
			`{"id":"7/0","messages":[{"role":"user","content":"hi: a"}]}`},
		"chat": {config.Grade{Prompt: "{prompt}\n\n{answer}"}, chat, "a", "",
			`{"id":"7/0","messages":[{"role":"user","content":"system: be brief\n\nuser: what is\n[image_url]\n\n` +
				`assistant: [{\"id\":1}]\n\na"}]}`},
	} {
		got := newJudge(t, c.grader).AppendLine(nil, judge.Ref{Item: 7}, grade.Case{Prompt: json.RawMessage(c.prompt),
			Answer: c.answer, Expected: json.RawMessage(c.expected)})
		if string(got) != c.want+"\n" {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
}

// TestNoAnswerBreaksALine draws prompts, answers and expected values of any text.
func TestNoAnswerBreaksALine(t *testing.T) {
	t.Parallel()
	j := newJudge(t, config.Grade{System: "{rubric}", Rubric: "r", Expected: "x",
		Prompt: "<{prompt}|{answer}|{expected}>"})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[{}"\\a-z\n]*`),
			rapid.SampledFrom([]string{"{answer}", "{prompt}", "{expected}"}))
		prompt, answer, expected := text.Draw(t, "prompt"), text.Draw(t, "answer"), text.Draw(t, "expected")
		quoted := func(s string) json.RawMessage {
			b, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		ref := judge.Ref{Item: rapid.Uint64().Draw(t, "item"), Answer: rapid.IntRange(0, 127).Draw(t, "answer number")}
		line := j.AppendLine(nil, ref, grade.Case{Prompt: quoted(prompt), Answer: answer, Expected: quoted(expected)})
		var got struct {
			ID       string
			Messages []struct{ Role, Content string }
		}
		if err := json.Unmarshal(line, &got); err != nil || strings.IndexByte(string(line), '\n') != len(line)-1 {
			t.Fatalf("%v: %s", err, line)
		}
		if want := "<" + prompt + "|" + answer + "|" + expected + ">"; len(got.Messages) != 2 ||
			got.Messages[1].Content != want {
			t.Fatalf("%q, want %q", got.Messages, want)
		}
		if back, err := judge.ParseRef([]byte(got.ID)); err != nil || back != ref {
			t.Fatalf("%s is of %+v, %v, want %+v", got.ID, back, err, ref)
		}
	})
}

func TestALineThatIsTooLongKeepsItsID(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prompt, answer string
		bytes          int
	}{
		"long":         {"{answer}", strings.Repeat("x", 17<<20), 17 << 20},
		"with escapes": {"{answer}", strings.Repeat("\x00", 3<<20), 6*3<<20 + 55},
		"repeated":     {strings.Repeat("{answer}", 2000), strings.Repeat("x", 16<<20), 2000 * 16 << 20},
	} {
		j := newJudge(t, config.Grade{Prompt: c.prompt})
		got := string(j.AppendLine([]byte("before\n"), judge.Ref{Item: 3, Answer: 1}, grade.Case{Answer: c.answer}))
		want := fmt.Sprintf("before\n"+`{"id":"3/1","messages":"the question about this answer has %d bytes"}`+"\n", c.bytes)
		if got != want {
			t.Errorf("%s: %.200q, want %q", name, got, want)
		}
	}
}

func TestOtherIDsAreNoReferences(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", "7", "7/", "/0", "07/0", "7/-1", "7/0/1", "7/+0", "18446744073709551616/0"} {
		if r, err := judge.ParseRef([]byte(id)); err == nil {
			t.Errorf("%q is taken for %+v", id, r)
		}
	}
}

func TestReferencesAreOrderedByItemAndAnswer(t *testing.T) {
	t.Parallel()
	in := []judge.Ref{{}, {Answer: 1}, {Item: 2}, {Item: 2, Answer: 9}, {Item: 10}, {Item: math.MaxUint64}}
	for i := range in {
		for k := range in {
			if got := in[i].Compare(in[k]); (got < 0) != (i < k) || (got == 0) != (i == k) {
				t.Errorf("%v compared with %v is %d", in[i], in[k], got)
			}
		}
	}
}

func TestSeveralAnswersOfAJudgeScoreTheirMean(t *testing.T) {
	t.Parallel()
	j := newJudge(t, config.Grade{Prompt: "{answer}"})
	unparseable := grade.Missing(grade.Unparseable)
	for text, want := range map[string]grade.Score{"5": {Value: 0.5}, "5,10": {Value: 0.75}, "5,x": unparseable,
		"": unparseable, "5,1…": unparseable} {
		var said []judge.Said
		for s := range strings.SplitSeq(text, ",") {
			whole, cut := strings.CutSuffix(s, "…")
			said = append(said, judge.Said{Text: whole, Cut: cut})
		}
		if got := j.Score(said); got != want {
			t.Errorf("%q has %+v, want %+v", text, got, want)
		}
	}
	if got := j.Score(nil); got != unparseable {
		t.Errorf("no answer has %+v", got)
	}
}
