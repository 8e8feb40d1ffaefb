package command_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/scripts/rollout/batch"
)

func TestSubmitDryRunShowsTheRequestsAndCopiesNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := f.file("x.jsonl", "{\"prompt\":\"hi\",\"id\":\"a\",\"tag\":1}\n{\"prompt\":\"ho\",\"id\":\"b\"}\n")
	args := []string{"submit", file, "--dry-run", "--set", "model.uri=m", "--set", "sampling.max_tokens=7"}
	r := f.rollout(args...)
	if r.code != 0 || r.out != "dry-run OK: model=m inputs=2\n" {
		t.Fatalf("%+v", r)
	}
	for _, want := range []string{
		"goes to     /completions\n", "gets back   tag (1 of 2)\n", `"prompt":"ho"`, `"max_tokens":7`,
	} {
		if !strings.Contains(r.err, want) {
			t.Errorf("no %q in\n%s", want, r.err)
		}
	}
	var report batch.Report
	r = f.rollout(append(args, "--json")...)
	if err := json.Unmarshal([]byte(r.out), &report); err != nil || r.code != 0 || report.Items != 2 ||
		report.Sent["max_tokens"] != 2 || len(report.Requests) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := os.Stat(filepath.Join(f.dir, "bucket", "prompts", "x.jsonl")); err == nil {
		t.Error("the prompts were copied")
	}
}

func TestSubmitDryRunExitsWith1IfLinesAreBadAnd2IfTheConfigIs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	file := f.file("x.jsonl", "{\"prompt\":\"hi\",\"id\":\"a\"}\n{\"prompt\":\"ho\",\"id\":\"a\"}\n{\"prompt\":1}\n")
	model := []string{"--dry-run", "--set", "model.uri=m"}
	r := f.rollout(append([]string{"submit", file}, model...)...)
	if r.code != 1 || r.out != "dry-run: model=m inputs=3 bad=2\n" ||
		!strings.Contains(r.err, `x.jsonl:2: the id "a" is that of an earlier line`) {
		t.Errorf("%+v", r)
	}
	if r := f.rollout("submit", file, "--dry-run", "--set", "sampling.top_p=2"); r.code != 2 {
		t.Errorf("a wrong setting: %+v", r)
	}
	if r := f.rollout("submit", file, "--dry-run", "--set", "kind=rollout"); r.code != 2 {
		t.Errorf("a rollout: %+v", r)
	}
}
