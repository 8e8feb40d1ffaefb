package config

import (
	"strings"
	"testing"
)

const (
	trialsHead  = "schema_version = 1\nkind = 'trials'\n[[variant]]\nname = 'v'\n"
	aGrader     = "[[grade]]\nname = 'g'\nkind = 'exact'\nexpected = 'answer'\n"
	twoVariants = "[[variant]]\nname = 'w'\n" + aGrader
)

func TestLooksAreThoseOfTheRule(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]int{
		"":                                     0,
		"[pruning]\nrule = 'race'":             10,
		"[pruning]\nrule = 'race'\nlooks = 3":  3,
		"[pruning]\nrule = 'halving'":          3,
		"[pruning]\nrule = 'halving'\neta = 5": 1,
	} {
		src = trialsHead + twoVariants + "[[variant]]\nname = 'x'\n[[variant]]\nname = 'y'\n[[variant]]\nname = 'z'\n" + src
		if got, err := ParseRun("x.toml", []byte(src)); err != nil || got.LooksOf() != want || got.Prunes() != (want > 0) {
			t.Errorf("%s: %d looks, want %d; %v", src, got.LooksOf(), want, err)
		}
	}
}

func TestTrialsNeedAVariantAndNoMore(t *testing.T) {
	t.Parallel()
	got, err := ParseRun("x.toml", []byte(trialsHead))
	if err != nil || got.DesignOf() != DefaultDesign() || len(got.Variants) != 1 {
		t.Errorf("%v, %+v", err, got)
	}
	got, err = ParseRun("x.toml", []byte(trialsHead+"sampling.temperature = 0.5\n[design]\nreplications = 3\n"))
	if err != nil || got.Design.Order != TrialsInterleaved || got.Design.Replications != 3 ||
		*got.Variants[0].Sampling.Temperature != 0.5 {
		t.Errorf("keys that a table leaves out: %v, %+v", err, got)
	}
}

// TestTrialsProblems has the lines behind those of valid trials a row, and a part of the only
// problem.
func TestTrialsProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, want string }{
		"no replication":        {"[design]\nreplications = 0", "x.toml:6: design.replications: must be between 1 and 1000"},
		"too many replications": {"[design]\nreplications = 1001", "design.replications: must be between 1 and 1000"},
		"a misspelt order": {"[design]\norder = 'interleave'",
			`design.order: "interleave" is not a valid order; did you mean "interleaved"?`},
		"a negative seed":  {"[design]\nseed = -1", "design.seed: must not be negative, is -1"},
		"a negative limit": {"[design]\nmax_concurrency = -1", "design.max_concurrency: must be between 0 and 1000000"},
		"no path":          {"[design]\nchain = 'a..b'", `design.chain: "a..b" is not a path`},
		"a chain at random": {"[design]\nchain = 'a'\norder = 'random'",
			"design.order: a chain keeps the order of its tasks: use another order"},
		"a variant without a name": {"[[variant]]\nsystem = 'a'", "variant[1].name: missing"},
		"two variants of a name":   {"[[variant]]\nname = 'v'", `variant[1].name: "v" is the name of an earlier variant`},
		"a name with a slash":      {"[[variant]]\nname = 'a/b'", "variant[1].name: "},
		"a name with dots":         {"[[variant]]\nname = '..'", "variant[1].name: "},
		"a name in capitals":       {"[[variant]]\nname = 'V'", "variant[1].name: "},
		"too many variants":        {strings.Repeat("[[variant]]\nname = 'a'\n", 64), "variant[64]: is one of 65 variants"},
		"a blank prompt":           {"prompt = ' '", "variant[0].prompt: is empty: write what is asked about a task"},
		"a prompt without a task":  {"prompt = 'hello {}'", "variant[0].prompt: does not show the task"},
		"messages in a prompt":     {"prompt = '{messages}'", "variant[0].prompt: {messages} is not a text"},
		"a long system message": {"system = '" + strings.Repeat("x", maxPromptText+1) + "'",
			"variant[0].system: has 16385 bytes, at most 16384 are allowed"},
		"a limit below none": {"max_parallel_trials = -1", "variant[0].max_parallel_trials: must be between 0 and 1000000"},
		"a hot variant":      {"sampling.temperature = 3", "variant[0].sampling.temperature: must be at least 0"},
		"several answers":    {"sampling.n = 2", "variant[0].sampling.n: does not apply to a variant"},
		"a seed of a variant": {"sampling.seed = 2",
			"variant[0].sampling.seed: does not apply to a variant: set design.seed"},
		"log probabilities": {"sampling.logprobs = 2", "variant[0].sampling.logprobs: does not apply to a variant"},
		"a target": {"prompt = '{prompt} {answer}'\n[[grade]]\nname = 'g'\nkind = 'exact'\nexpected = 'answer.0'",
			"variant[0].prompt: {answer} would show the model what the grader g expects: remove it"},
		"a prompt as a target": {"[[grade]]\nname = 'g'\nkind = 'exact'\nexpected = 'prompt'",
			`grade[0].expected: "prompt" is what the model is asked`},
		"a judge of a run that prunes": {twoVariants + "[pruning]\nrule = 'race'\n[[grade]]\nname = 'j'\n" +
			"kind = 'judge'\nprompt = '{answer}'\nrange = [0, 1]",
			"grade[1].kind: a judge reads the answers when all trials are over"},
		"a long model":     {"model = '" + strings.Repeat("x", maxText+1) + "'", "variant[0].model: "},
		"a dialect":        {"[input]\ndialect = 'openai'", "input.dialect: does not apply to trials"},
		"dedupe":           {"[dedupe]\nenabled = true", "dedupe: does not apply to trials"},
		"n":                {"[sampling]\nn = 2", "sampling.n: does not apply to trials: set design.replications"},
		"seed":             {"[sampling]\nseed = 2", "sampling.seed: does not apply to trials: set design.seed"},
		"items of a shard": {"[shard]\nitems = 9", "shard.items: does not apply to trials"},
		"no chats":         {"[request]\nendpoint = 'completions'", "request.endpoint: tasks are asked as chats"},
		"a rule by another name": {"[pruning]\nrule = 'races'",
			`pruning.rule: "races" is not a valid rule; did you mean "race"?`},
		"pruning without scores": {"[[variant]]\nname = 'w'\n[pruning]\nrule = 'race'",
			"pruning.rule: variants are left out by their scores: add a table [[grade]]"},
		"pruning of one variant": {aGrader + "[pruning]\nrule = 'race'", "pruning.rule: a single variant has none"},
		"pruning variant by variant": {twoVariants + "[design]\norder = 'variant'\n[pruning]\nrule = 'race'",
			`pruning.rule: variants are compared while all of them advance: set design.order to another one than "variant"`},
		"a grader that is missing": {twoVariants + "[pruning]\nrule = 'race'\ngrader = 'h'",
			`pruning.grader: "h" is not a valid grader`},
		"no bound": {twoVariants + "[pruning]\nrule = 'fixed'", "pruning.below: missing: set the mean score below which"},
		"a bound of a race": {twoVariants + "[pruning]\nrule = 'race'\nbelow = 0.5",
			`pruning.below: does not apply to the rule "race": set rule = "fixed"`},
		"a race without a rule": {"[pruning]\nalpha = 0.1",
			`pruning.alpha: does not apply to the rule "off": set rule = "race"`},
		"no alpha": {twoVariants + "[pruning]\nrule = 'race'\nalpha = 0",
			"pruning.alpha: must be above 0 and at most 0.5"},
		"a large alpha": {twoVariants + "[pruning]\nrule = 'race'\nalpha = 0.6", "pruning.alpha: must be above 0"},
		"a test by another name": {twoVariants + "[pruning]\nrule = 'race'\ntest = 't'",
			`pruning.test: "t" is not a valid test`},
		"a misspelt spending": {twoVariants + "[pruning]\nrule = 'race'\nspending = 'pocok'",
			`pruning.spending: "pocok" is not a valid spending; did you mean "pocock"?`},
		"too many looks": {twoVariants + "[pruning]\nrule = 'race'\nlooks = 33", "pruning.looks: must be between 0 and 32"},
		"one task":       {twoVariants + "[pruning]\nrule = 'race'\nmin_tasks = 1", "pruning.min_tasks: must be between 2"},
		"an eta of one":  {twoVariants + "[pruning]\nrule = 'halving'\neta = 1", "pruning.eta: must be between 2 and 64"},
		"a mission":      {"[[mission]]\nname = 'm'", "mission: applies only to a rollout"},
	} {
		_, err := ParseRun("x.toml", []byte(trialsHead+c.src+"\n"))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestOtherKindsHaveNoVariants(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]string{
		"schema_version = 1\n[[variant]]\nname = 'v'\n": "variant: applies only to trials, and this run is a batch",
		"schema_version = 1\n[design]\nseed = 1\n":      "design: applies only to trials, and this run is a batch",
		"schema_version = 1\n[pruning]\nlooks = 1\n":    "pruning: applies only to trials, and this run is a batch",
		"schema_version = 1\nkind = 'trials'\n":         "variant: missing: add a table [[variant]] with a name",
	} {
		if _, err := ParseRun("x.toml", []byte(src)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", src, err, want)
		}
	}
	deployment := "schema_version = 1\nbucket = 'b'\n[defaults]\nkind = 'trials'\n"
	const want = `defaults.kind: "trials" can't be the default kind of runs`
	if _, err := ParseDeployment("rollout.toml", []byte(deployment)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestMembersAreWordsInBraces(t *testing.T) {
	t.Parallel()
	got := strings.Join(Members(`{a} {"b": {}} {a_1} {a} {} {c d} {{e}} {ü}`), " ")
	if want := "a a_1 e"; got != want {
		t.Errorf("members are %q, want %q", got, want)
	}
}
