package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/fault"
)

func TestParseRunReadsGraders(t *testing.T) {
	t.Parallel()
	got, err := ParseRun("x.toml", []byte(head+`
[[grade]]
name = "correct"
kind = "numeric"
expected = "meta.answer"
extract = '#### (.*)'
pick = "first"
relative_tolerance = 0.01
weight = 2
[[grade]]
name = "reward"
kind = "http"
service = "reward"
`))
	want := []Grade{
		{Name: "correct", Kind: GradeNumeric, Expected: "meta.answer", Extract: "#### (.*)", Pick: PickFirst,
			RelativeTolerance: 0.01, Weight: ptr(2.0)},
		{Name: "reward", Kind: GradeHTTP, Service: "reward"},
	}
	if d := cmp.Diff(want, got.Grades); d != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, d)
	}
	if got.Grades[0].Share() != 2 || got.Grades[1].Share() != 1 {
		t.Errorf("shares %v and %v, want 2 and 1", got.Grades[0].Share(), got.Grades[1].Share())
	}
}

func TestParseDeploymentReadsScoringServices(t *testing.T) {
	t.Parallel()
	got, err := ParseDeployment("d.toml", []byte(head+`
secrets = ["reward-key"]
[graders.reward]
url = "https://reward.example/score"
secret = "reward-key"
batch = 64
[graders.style]
url = "http://127.0.0.1:9000"
max_wait = "30s"
[[defaults.grade]]
name = "style"
kind = "http"
service = "style"
`))
	reward, style := DefaultGraderService(), DefaultGraderService()
	reward.URL, reward.Secret, reward.Batch = "https://reward.example/score", "reward-key", 64
	style.URL, style.MaxWait = "http://127.0.0.1:9000", Duration(30*time.Second)
	want := map[string]GraderService{"reward": reward, "style": style}
	if d := cmp.Diff(want, got.Graders); d != "" || err != nil {
		t.Errorf("%v (-want +got)\n%s", err, d)
	}
	known := []Grade{{Name: "a", Kind: GradeHTTP, Service: "style"}, {Name: "b", Kind: GradeExact}}
	if err := got.CheckServices(known); err != nil {
		t.Errorf("CheckServices of a known service: %v", err)
	}
	unknown := []Grade{{Name: "a", Kind: GradeHTTP, Service: "styel"}}
	err = got.CheckServices(unknown)
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "reward, style") {
		t.Errorf("CheckServices of an unknown service: %v, want Invalid with the names of the others", err)
	}
}

// TestInferSecretsAreThoseThatItNames covers the allowlist of `infer batch`.
func TestInferSecretsAreThoseThatItNames(t *testing.T) {
	t.Parallel()
	f := Infer{Engine: Engine{Secret: "engine-key"}, Graders: map[string]GraderService{
		"b": {Secret: "b-key"}, "a": {Secret: "engine-key"}, "c": {}}}
	if d := cmp.Diff([]string{"engine-key", "b-key"}, f.Secrets()); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// TestGraderProblems has the lines of one [[grade]] a row, and the problem that
// follows "x.toml:<line>: grade[0]".
func TestGraderProblems(t *testing.T) {
	t.Parallel()
	const exact = "name = 'a'\nkind = 'exact'\nexpected = 'x'\n"
	for name, c := range map[string]struct{ src, want string }{
		"no name": {"kind = 'exact'\nexpected = 'x'",
			"2: grade[0].name: missing: give it a name of a-z, 0-9 and -_"},
		"invalid name": {"name = 'A'\nkind = 'exact'\nexpected = 'x'",
			`3: grade[0].name: "A" is not a valid name: use 1 to 32 of a-z, 0-9 and -_`},
		"no kind": {"name = 'a'",
			"2: grade[0].kind: missing: use one of exact, regex, numeric, choice, label, json_schema, http, judge, plugin"},
		"misspelt kind": {"name = 'a'\nkind = 'exakt'",
			`4: grade[0].kind: "exakt" is not a valid kind of grader; did you mean "exact"?`},
		"misspelt key": {exact + "patern = 'x'", "6: grade[0].patern: unknown key; did you mean pattern?"},
		"no expected": {"name = 'a'\nkind = 'exact'",
			"2: grade[0].expected: missing: name the member of the lines with the expected value, such as \"answer\""},
		"invalid path": {"name = 'a'\nkind = 'exact'\nexpected = 'a..b'",
			`5: grade[0].expected: "a..b" is not a path: write names and numbers with a dot between them, ` +
				`such as "meta.answer"`},
		"of other kinds": {exact + "pattern = 'x'",
			"6: grade[0].pattern: applies only to graders of the kind regex, and this one is exact: remove it"},
		"weight": {exact + "weight = -1", "6: grade[0].weight: must be at least 0 and at most 1e+06, is -1"},
		"only weight 0": {exact + "weight = 0",
			"2: grade[0]: all graders have the weight 0, so that no row would have a score: give one a weight"},
		"expression": {exact + "extract = '('",
			"6: grade[0].extract: is not a regular expression that Go knows (RE2): missing closing ): `(`"},
		"look-ahead": {exact + "extract = '(?=x)'",
			"6: grade[0].extract: is not a regular expression that Go knows (RE2): invalid or unsupported " +
				"Perl syntax: `(?=`"},
		"pick": {exact + "extract = 'x'\npick = 'middle'",
			`7: grade[0].pick: "middle" is not a valid match: use first or last`},
		"pick of all": {exact + "pick = 'last'",
			"6: grade[0].pick: has no effect without extract: add extract, or remove it"},
		"regex": {"name = 'a'\nkind = 'regex'",
			"2: grade[0].pattern: missing: set it, or name the member of the lines that has it as expected"},
		"two patterns": {"name = 'a'\nkind = 'regex'\npattern = 'x'\nexpected = 'y'",
			"6: grade[0].expected: pattern is set too, and only one of them can count: remove one"},
		"tolerance": {"name = 'a'\nkind = 'numeric'\nexpected = 'x'\ntolerance = -1",
			"6: grade[0].tolerance: must be at least 0 and at most 1e+300, is -1"},
		"share": {"name = 'a'\nkind = 'numeric'\nexpected = 'x'\nrelative_tolerance = 2",
			"6: grade[0].relative_tolerance: must be at least 0 and at most 1, is 2"},
		"one choice": {"name = 'a'\nkind = 'choice'\nexpected = 'x'\nchoices = ['A']",
			"6: grade[0].choices: must list 2 to 256 options, lists 1"},
		"equal choices": {"name = 'a'\nkind = 'choice'\nexpected = 'x'\nchoices = ['A','a']",
			`6: grade[0].choices[1]: "a" is listed twice, upper and lower case apart: name each option once`},
		"no labels": {"name = 'a'\nkind = 'label'\nexpected = 'x'",
			"2: grade[0].labels: must list 2 to 256 options, lists 0"},
		"passing": {"name = 'a'\nkind = 'label'\nlabels = ['a','b']\npassing = ['c']",
			`6: grade[0].passing[0]: "c" is not one of the labels: add it to them, or remove it`},
		"no schema": {"name = 'a'\nkind = 'json_schema'",
			"2: grade[0].schema: missing: write the JSON schema between ''' and '''"},
		"broken schema": {"name = 'a'\nkind = 'json_schema'\nschema = '{'",
			"5: grade[0].schema: is not valid JSON: write the JSON schema between ''' and '''"},
		"a schema that is none": {"name = 'a'\nkind = 'json_schema'\nschema = '{\"type\":\"text\"}'",
			"5: grade[0].schema: is not a JSON schema that can be used: at '/type': value must be one of 'array', " +
				"'boolean', 'integer', …"},
		"no service": {"name = 'a'\nkind = 'http'",
			"2: grade[0].service: missing: name a scoring service, a table [graders.NAME] of the deployment's config"},
		"an address": {"name = 'a'\nkind = 'http'\nservice = 'http://x'",
			`5: grade[0].service: "http://x" is not a valid name: use 1 to 32 of a-z, 0-9 and -`},
		"the same name": {exact + "[[grade]]\n" + exact,
			`7: grade[1].name: "a" is the name of an earlier grader: give each grader its own`},
		"dedupe": {exact + "[dedupe]\nenabled = true",
			"2: grade[0]: can't be combined with dedupe.enabled, because a copy of an answer would get the " +
				"scores of another row: remove one of them"},
		"too many": {exact + strings.Repeat("[[grade]]\n"+exact, 8),
			"34: grade[8]: is one of 9 graders, at most 8 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseRun("x.toml", []byte(head+"[[grade]]\n"+c.src))
			wantProblem(t, err, "x.toml:"+c.want)
		})
	}
}

func TestScoringServiceProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, want string }{
		"no address": {"[graders.a]\nbatch = 1",
			"2: graders.a.url: missing: name the address that scores answers, such as \"http://127.0.0.1:9000/score\""},
		"no web address": {"[graders.a]\nurl = 'tiny'",
			"3: graders.a.url: must be an http or https address, such as \"http://127.0.0.1:9000/score\""},
		"a key in the address": {"[graders.a]\nurl = 'http://u:p@h'",
			"3: graders.a.url: must not hold a user or password: put the key into a secret and name it as graders.a.secret"},
		"secret": {"[graders.a]\nurl = 'http://h'\nsecret = 'k'",
			`4: graders.a.secret: "k" is not in the allowlist: add it to secrets`},
		"batch": {"[graders.a]\nurl = 'http://h'\nbatch = 0",
			"4: graders.a.batch: must be between 1 and 1024, is 0"},
		"retries": {"[graders.a]\nurl = 'http://h'\nretries = -1",
			"4: graders.a.retries: must be between 0 and 100, is -1"},
		"max_wait": {"[graders.a]\nurl = 'http://h'\nmax_wait = '1s'",
			"4: graders.a.max_wait: must be at least timeout (30s), is 1s"},
		"name": {"[graders.A]\nurl = 'http://h'",
			`2: graders.A: "A" is not a valid name: use 1 to 32 of a-z, 0-9 and -`},
		"misspelt key": {"[graders.a]\nurl = 'http://h'\nbatsh = 3",
			"4: graders.a.batsh: unknown key; did you mean batch?"},
		"no table": {"graders = 3", "2: graders: must be tables, is 3"},
		"unknown service": {"[[defaults.grade]]\nname = 'a'\nkind = 'http'\nservice = 'b'",
			`5: defaults.grade[0].service: the deployment has no scoring service "b": ` +
				`add [graders.b] with its url to its config`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseDeployment("d.toml", []byte(head+c.src))
			wantProblem(t, err, "d.toml:"+c.want)
		})
	}
}
