package command_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/scripts/rollout/command"
	"rollout/shared/clock"
)

func TestConvertWritesTheFileAndSaysSo(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	in, out := filepath.Join(folder, "a.csv"), filepath.Join(folder, "a.jsonl")
	write(t, in, "question,id\nHello,1\nBye\n")
	check(t, rollout(t.Context(), "convert", in, out, "--columns", "prompt=question,id"), 0, "",
		"rows with fewer fields than the header: 1", out+": 2 rows of jsonl")
	b, err := os.ReadFile(out)
	if err != nil || string(b) != "{\"prompt\":\"Hello\",\"id\":\"1\"}\n{\"prompt\":\"Bye\"}\n" {
		t.Errorf("the file has %q (%v)", b, err)
	}
	check(t, rollout(t.Context(), "convert", in, out), 2, "", out+" already exists", "--force")
	r := rollout(t.Context(), "convert", in, out, "--force", "--json")
	var summary map[string]any
	if err := json.Unmarshal([]byte(r.out), &summary); err != nil || r.code != 0 || summary["rows"] != 2.0 ||
		summary["short_rows"] != 1.0 || summary["to"] != "jsonl" {
		t.Errorf("%+v (%v)", r, err)
	}
}

func TestConvertReadsStandardInput(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	code := command.Main(t.Context(), []string{"convert", "-", "-"}, command.Env{In: strings.NewReader(`[{"a":1}]`),
		Out: &out, Err: &errs, Clock: clock.Fixed(noon), Getenv: noEnv})
	if code != 0 || out.String() != "{\"a\":1}\n" || errs.String() != "standard output: 1 row of jsonl\n" {
		t.Errorf("%d: %q, %q", code, &out, &errs)
	}
	check(t, rollout(t.Context(), "convert", "-", "-", "--json"), 2, "", "--json and OUT -")
}
