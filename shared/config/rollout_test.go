package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/fault"
)

const rolloutHead = head + "kind = 'rollout'\n[[mission]]\nname = 'm'\n"

func TestParseRunReadsRollouts(t *testing.T) {
	t.Parallel()
	got, err := ParseRun("x.toml", []byte(rolloutHead+`
scaffold = "S"
entries = ["a", "b"]
[rollout]
seed = 7
system = "{guidance}"
prompt = "{content} {mission}"
[[decode]]
temperature = 0.5
top_p = 0.9
max_tokens = 5
stop = ["x"]
seed = 3
samples = 4
[[decode]]
[answer]
pattern = "(y|n)"
verdicts = ["y", "n"]
ignore_case = true
[runner]
rollout_batch_size = 8
parallelism = 3
[selection]
policy = "label_match"
review_below = 0.7
`))
	want := DefaultRun()
	want.Kind = KindRollout
	want.Missions = []Mission{{Name: "m", Scaffold: "S", Entries: []string{"a", "b"}}}
	want.Rollout = &Rollout{Seed: 7, Epochs: 1, System: "{guidance}", Prompt: "{content} {mission}"}
	want.Decodes = []Decode{{Temperature: ptr(0.5), TopP: ptr(0.9), MaxTokens: ptr(5), Stop: []string{"x"},
		Seed: ptr(int64(3)), Samples: 4}, {}}
	want.Answer = &Answer{Pattern: "(y|n)", Verdicts: []string{"y", "n"}, IgnoreCase: true}
	want.Runner = &Runner{RolloutBatchSize: 8, Parallelism: 3}
	want.Selection = &Selection{Policy: SelectLabel, ReviewBelow: 0.7}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, d)
	}
	if got.Members() != 5 {
		t.Errorf("a ticket has %d members", got.Members())
	}
}

func TestRolloutNeedsAMissionAndNoMore(t *testing.T) {
	t.Parallel()
	got, err := ParseRun("x.toml", []byte(rolloutHead))
	if err != nil || got.Members() != 1 || got.RunnerOf() != DefaultRunner() || got.RolloutOf() != DefaultRollout() ||
		got.SelectionOf() != DefaultSelection() {
		t.Errorf("%v, %+v", err, got)
	}
	got, err = ParseRun("x.toml",
		[]byte(rolloutHead+"[runner]\nparallelism = 2\n[rollout]\nseed = 1\n[selection]\nreview_below = 1\n"))
	if err != nil || got.Runner.RolloutBatchSize != 64 || got.Rollout.Prompt != DefaultRollout().Prompt ||
		got.Selection.Policy != SelectVote {
		t.Errorf("keys that a table leaves out: %v, %+v", err, got)
	}
}

// TestRolloutProblems has the lines behind those of a valid rollout a row, and a part of
// the only problem.
func TestRolloutProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, want string }{
		"a negative seed": {"[rollout]\nseed = -1", "x.toml:6: rollout.seed: must not be negative, is -1"},
		"an empty prompt": {"[rollout]\nsystem = '{guidance}'\nprompt = ' '",
			"x.toml:7: rollout.prompt: is empty"},
		"no ticket in the prompt": {"[rollout]\nprompt = '{guidance}'",
			"rollout.prompt: does not show the ticket: write {content}"},
		"no guidance": {"[rollout]\nprompt = '{content}'",
			"rollout.prompt: does not show the guidance: write {guidance}"},
		"a misspelt placeholder": {"[rollout]\nprompt = '{guidance} {content} {mision}'",
			"{mision} is not a placeholder; did you mean {mission}?"},
		"a long prompt": {"[rollout]\nprompt = '{guidance}{content}" + strings.Repeat("x", maxPromptText) +
			"'", "rollout.prompt: has 16403 bytes, at most 16384 are allowed"},
		"a mission without a name": {"[[mission]]\nentries = ['a']", "mission[1].name: missing"},
		"two missions of a name":   {"[[mission]]\nname = 'm'", `mission[1].name: "m" is the name of an earlier mission`},
		"a name with a slash":      {"[[mission]]\nname = 'a/b'", "mission[1].name: "},
		"a name with dots":         {"[[mission]]\nname = '..'", "mission[1].name: "},
		"a name in capitals":       {"[[mission]]\nname = 'M'", "mission[1].name: "},
		"too many missions":        {missionsOf(64), "mission[64]: is one of 65 missions, at most 64 are allowed"},
		"an empty entry":           {"entries = ['a', ' ']", "mission[0].entries[1]: is empty: remove it"},
		"too many entries": {"entries = [" + strings.Repeat("'a',", 201) + "]",
			"mission[0].entries: has 201 entries, at most 200 are allowed"},
		"a long entry": {"entries = ['" + strings.Repeat("a", maxText+1) + "']",
			"mission[0].entries[0]: has 2049 bytes"},
		"a long scaffold": {"scaffold = '" + strings.Repeat("a", maxPromptText+1) + "'",
			"mission[0].scaffold: has 16385 bytes"},
		"a hot decode": {"[[decode]]\ntemperature = 2.5",
			"decode[0].temperature: must be at least 0 and at most 2, is 2.5"},
		"a negative seed of a decode": {"[[decode]]\nseed = -1", "decode[0].seed: "},
		"negative samples":            {"[[decode]]\nsamples = -1", "decode[0].samples: must be between 0 and 256, is -1"},
		"too many samples":            {"[[decode]]\nsamples = 257", "decode[0].samples: must be between 0 and 256, is 257"},
		"too many members": {"[[decode]]\nsamples = 200\n[[decode]]\nsamples = 57",
			"each ticket would get 257 answers, at most 256 are allowed"},
		"too many decodes": {strings.Repeat("[[decode]]\n", 17),
			"decode[16]: is one of 17, at most 16 are allowed"},
		"a bad pattern": {"[answer]\npattern = '('", "answer.pattern: "},
		"pattern and schema": {"[answer]\npattern = 'a'\nschema = '{}'\nmember = 'a'",
			"answer.schema: pattern is set too"},
		"a schema without a member": {"[answer]\nschema = '{}'", "answer.member: missing"},
		"a member without a schema": {"[answer]\nmember = 'a'", "answer.member: applies only with schema"},
		"a schema that is no JSON":  {"[answer]\nschema = '{'\nmember = 'a'", "answer.schema: "},
		"an empty verdict":          {"[answer]\nverdicts = ['a', '']", "answer.verdicts[1]: is empty"},
		"too many verdicts": {"[answer]\nverdicts = [" + strings.Repeat("'a',", 101) + "]",
			"answer.verdicts: has 101, at most 100 are allowed"},
		"no tickets in a batch": {"[runner]\nrollout_batch_size = 0",
			"runner.rollout_batch_size: must be between 1 and 65536, is 0"},
		"a batch of too many answers": {"[runner]\nrollout_batch_size = 16385\n[[decode]]\nsamples = 4",
			"runner.rollout_batch_size: must be between 1 and 16384, is 16385"},
		"negative parallelism": {"[runner]\nparallelism = -1",
			"runner.parallelism: must be between 0 and 65536, is -1"},
		"an unknown way to go on": {"[runner]\non_interrupt = 'restart'", `runner.on_interrupt: "restart" is not a valid`},
		"an unknown policy":       {"[selection]\npolicy = 'best'", "selection.policy: "},
		"a share above one": {"[selection]\nreview_below = 1.5",
			"selection.review_below: must be at least 0 and at most 1, is 1.5"},
		"a judge": {"[[grade]]\nname = 'a'\nkind = 'judge'\nprompt = '{answer}'\nrange = [0, 1]",
			"grade[0].kind: a rollout has no judges in this version"},
		"an endpoint of texts": {"[request]\nendpoint = 'completions'",
			"request.endpoint: tickets are asked as chats"},
		"a verdict twice": {"[answer]\nverdicts = ['Yes', 'yes']\nignore_case = true",
			`answer.verdicts[1]: "yes" is in the list before`},
		"a dialect":                    {"[input]\ndialect = 'openai'", "input.dialect: does not apply to a rollout"},
		"several answers of a request": {"[sampling]\nn = 2", "sampling.n: does not apply to a rollout: set decode.samples"},
		"a seed of all":                {"[sampling]\nseed = 2", "sampling.seed: does not apply to a rollout"},
		"items of a shard":             {"[shard]\nitems = 7", "shard.items: does not apply to a rollout"},
		"deduplication":                {"[dedupe]\nenabled = true", "dedupe: does not apply to a rollout"},
	} {
		_, err := ParseRun("x.toml", []byte(rolloutHead+c.src+"\n"))
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v\nwant one problem: %s", name, err, c.want)
		}
	}
}

func missionsOf(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[[mission]]\nname = 'm%d'\n", i)
	}
	return b.String()
}

func TestTablesOfARolloutBelongToNoOtherRun(t *testing.T) {
	t.Parallel()
	for table, src := range map[string]string{"rollout": "[rollout]\nseed = 1", "mission": "[[mission]]\nname = 'm'",
		"decode": "[[decode]]\nsamples = 2", "answer": "[answer]\npattern = 'a'", "runner": "[runner]\nparallelism = 1",
		"selection": "[selection]\nreview_below = 1"} {
		for kind, line := range map[string]string{KindBatch: "", KindTrain: "kind = 'train'\n"} {
			_, err := ParseRun("x.toml", []byte(head+line+src))
			if want := table + ": applies only to a rollout, and this run is a " + kind; !fault.Is(err, fault.Invalid) ||
				!strings.Contains(err.Error(), want) {
				t.Errorf("%s in a %s: %v", table, kind, err)
			}
		}
	}
}

func TestRolloutWithoutAMissionIsRefused(t *testing.T) {
	t.Parallel()
	_, err := ParseRun("x.toml", []byte(head+"kind = 'rollout'"))
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "mission: missing: add a table [[mission]]") {
		t.Error(err)
	}
}
