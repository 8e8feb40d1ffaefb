package config

import (
	"strings"
	"testing"
)

func TestAgentHasItsLimits(t *testing.T) {
	t.Parallel()
	got, err := ParseRun("x.toml", []byte(trialsHead+"command = ['a', 'b']\nenv = { A = 'b' }\n"+
		"[variant.limits]\nseconds = 5\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultAgentLimits()
	want.Seconds = 5
	if v := got.Variants[0]; !v.IsAgent() || v.LimitsOf() != want || v.Env["A"] != "b" {
		t.Errorf("%+v", v)
	}
	if got.Variants[0].Limits = nil; got.Variants[0].LimitsOf() != DefaultAgentLimits() {
		t.Errorf("%+v", got.Variants[0].LimitsOf())
	}
}

// TestAgentProblems has the lines behind those of valid trials a row, and a part of the only
// problem.
func TestAgentProblems(t *testing.T) {
	t.Parallel()
	const agent = "command = ['a']\n"
	for name, c := range map[string]struct{ src, want string }{
		"an empty program": {"command = ['']", "variant[0].command[0]: is empty"},
		"a zero byte":      {`command = ["a", "\u0000"]`, "variant[0].command[1]: has a zero byte"},
		"a prompt":         {agent + "prompt = '{prompt}'", "variant[0].prompt: does not apply to a variant with a command"},
		"sampling":         {agent + "sampling.temperature = 1", "variant[0].sampling: does not apply"},
		"a file": {agent + "artifact = 'agents/a.py'",
			"variant[0].artifact: \"agents/a.py\" is neither a folder nor a .tar"},
		"a parent":      {agent + "artifact = '../a/'", "variant[0].artifact: \"../a/\" is not a key"},
		"a root":        {agent + "artifact = '/a/'", "variant[0].artifact: \"/a/\" is not a key"},
		"a variable":    {agent + "env = { 'a-b' = '1' }", "variant[0].env.a-b: \"a-b\" is not the name of a variable"},
		"little memory": {agent + "limits.memory_mb = 1", "variant[0].limits.memory_mb: must be between 64 and 1048576"},
		"no request":    {agent + "limits.concurrent_requests = 0", "variant[0].limits.concurrent_requests: must be"},
		"shown anyway":  {agent + "shows = ['prompt']", "variant[0].shows[0]: \"prompt\" is shown anyway"},
		"a target": {agent + "shows = ['answer']\n[[grade]]\nname = 'g'\nkind = 'exact'\nexpected = 'answer.0'",
			"variant[0].shows[0]: \"answer\" would show the agent what the grader g expects"},
		"no agent": {"trusted = true", "variant[0].trusted: applies only to a variant with a command"},
	} {
		_, err := ParseRun("x.toml", []byte(trialsHead+c.src+"\n"))
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}
