package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/fault"
)

const judgeHead = "[[grade]]\nname = 'a'\nkind = 'judge'\n"

func TestParseRunReadsJudges(t *testing.T) {
	t.Parallel()
	got, err := ParseRun("x.toml", []byte(head+judgeHead+`
model = "wise"
prompt = """
Rate {answer} by {rubric}: {"score": 3}
"""
rubric = "be strict"
range = [1, 5]
extract = '"score": (\d)'
[grade.sampling]
max_tokens = 64
[grade.request]
headers = { X-Team = "evals" }
[[grade]]
name = "tone"
kind = "judge"
prompt = "Is {answer} polite?"
labels = ["yes", "somewhat", "no"]
label_scores = [1, 0.5, 0]
`))
	want := []Grade{
		{Name: "a", Kind: GradeJudge, Model: "wise", Prompt: "Rate {answer} by {rubric}: {\"score\": 3}\n",
			Rubric: "be strict", Range: []float64{1, 5}, Extract: `"score": (\d)`, Sampling: &Sampling{MaxTokens: ptr(64)},
			Request: &Request{Headers: map[string]string{"X-Team": "evals"}}},
		{Name: "tone", Kind: GradeJudge, Prompt: "Is {answer} polite?", Labels: []string{"yes", "somewhat", "no"},
			LabelScores: []float64{1, 0.5, 0}},
	}
	if d := cmp.Diff(want, got.Grades); d != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, d)
	}
	if s := string(got.Grades[0].JudgeSampling().Canonical()); s != `{"temperature":0,"max_tokens":64}` {
		t.Errorf("the judge is sampled with %s", s)
	}
	if d := cmp.Diff([]int{0, 1}, got.Judges()); d != "" {
		t.Error(d)
	}
}

// TestJudgeProblems has the lines of one [[grade]] of the kind judge a row, and the
// problem that follows "x.toml:<line>: grade[0].".
func TestJudgeProblems(t *testing.T) {
	t.Parallel()
	const asks, ranged = "prompt = 'rate {answer}'\n", "range = [0, 10]\n"
	for name, c := range map[string]struct{ src, want string }{
		"no prompt": {ranged,
			"prompt: missing: write what the judge is asked, with {answer} where the answer belongs"},
		"no answer": {ranged + "prompt = 'rate'",
			"prompt: does not show the answer to the judge: write {answer} where it belongs"},
		"question": {ranged + "prompt = '{question} {answer}'",
			"prompt: {question} is not a placeholder; did you mean {prompt}?"},
		"misspelt": {ranged + asks + "system = '{promt}'",
			"system: {promt} is not a placeholder; did you mean {prompt}?"},
		"expected": {ranged + "prompt = '{answer} {expected}'",
			"expected: missing: the prompt has {expected}; set it, or remove {expected} from the prompt"},
		"unused expected": {ranged + asks + "expected = 'x'",
			"expected: has no effect: write {expected} into the prompt, or remove it"},
		"rubric": {ranged + "prompt = '{answer} {rubric}'",
			"rubric: missing: the prompt has {rubric}; set it, or remove {rubric} from the prompt"},
		"unused rubric": {ranged + asks + "rubric = 'x'",
			"rubric: has no effect: write {rubric} into the prompt, or remove it"},
		"long rubric": {ranged + "prompt = '{answer} {rubric}'\nrubric = '" + strings.Repeat("x", 16<<10+1) + "'",
			"rubric: has 16385 bytes, at most 16384 are allowed"},
		"no verdict": {asks,
			"range: missing: set range = [0, 10] for a judge that answers a number, or labels for one that " +
				"answers a label"},
		"two verdicts": {asks + ranged + "labels = ['a','b']\npassing = ['a']",
			"range: labels is set too, and only one of them can count: remove one"},
		"empty range": {asks + "range = [1, 1]",
			"range: must be the lowest and the highest number that the judge may give, such as [0, 10]"},
		"range of one": {asks + "range = [1]",
			"range: must be the lowest and the highest number that the judge may give, such as [0, 10]"},
		"infinite range": {asks + "range = [0, inf]",
			"range: must be the lowest and the highest number that the judge may give, such as [0, 10]"},
		"passing of a range": {asks + ranged + "passing = ['a']",
			"passing: applies only to labels, and this judge has a range: remove it"},
		"labels alone": {asks + "labels = ['a','b']",
			"passing: missing: name the labels that score 1, or set label_scores with a score for each label"},
		"both label scores": {asks + "labels = ['a','b']\npassing = ['a']\nlabel_scores = [1,0]",
			"passing: label_scores is set too, and only one of them can count: remove one"},
		"fewer label scores": {asks + "labels = ['a','b']\nlabel_scores = [1]",
			"label_scores: has 1 scores for 2 labels: write one for each label"},
		"a high label score": {asks + "labels = ['a','b']\nlabel_scores = [1,2]",
			"label_scores[1]: must be at least 0 and at most 1, is 2"},
		"no such label": {asks + "labels = ['a','b']\npassing = ['c']",
			`passing[0]: "c" is not one of the labels: add it to them, or remove it`},
		"sampling": {asks + ranged + "sampling = { temperature = 9 }",
			"sampling.temperature: must be at least 0 and at most 2, is 9"},
		"endpoint": {asks + ranged + "request = { endpoint = 'embeddings' }",
			`request.endpoint: a judge answers a chat: use "chat" or "responses", or a path of one of them`},
		"system": {asks + ranged + "request = { system = 'x' }",
			"request.system: set grade[0].system in place of it"},
		"body_model": {asks + ranged + "request = { body_model = { a = 'b' } }",
			"request.body_model: has no effect, because a judge is asked by no line of yours: remove it"},
		"of other kinds": {asks + ranged + "pattern = 'x'",
			"pattern: applies only to graders of the kind regex, and this one is judge: remove it"},
	} {
		_, err := ParseRun("x.toml", []byte(head+judgeHead+c.src))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), ": grade[0]."+c.want+"\n") &&
			!strings.HasSuffix(err.Error(), ": grade[0]."+c.want) {
			t.Errorf("%s:\n%v\nwant\n%s", name, err, c.want)
		}
	}
}

func TestARunHasAtMostThreeJudges(t *testing.T) {
	t.Parallel()
	src := head
	for _, name := range []string{"a", "b", "c", "d"} {
		src += strings.Replace(judgeHead, "'a'", "'"+name+"'", 1) + "prompt = '{answer}'\nrange = [0, 1]\n"
	}
	_, err := ParseRun("x.toml", []byte(src))
	if err == nil || !strings.Contains(err.Error(), "grade[3]: is the fourth judge, and a run has at most 3") {
		t.Error(err)
	}
}
