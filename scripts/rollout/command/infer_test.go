package command_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"rollout/shared/installation"
)

// If the second start replaced the run id, the next start would process all items again.
func TestSecondStartOfABatchChangesNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("a.jsonl", `{"prompt":"p"}`)
	cfg := write("batch.toml", fmt.Sprintf(
		"[model]\nuri = \"m\"\n[engine]\nurl = \"mock\"\n[input]\nglob = %q\n[output]\ndir = %q\n",
		filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "out")))
	state := filepath.Join(dir, "out", ".rollout")
	release, err := installation.AcquireLock(state) // the first one runs
	if err != nil {
		t.Fatal(err)
	}
	check(t, rollout(t.Context(), "infer", "batch", "--config", cfg), 2, "", "already runs")
	for _, path := range []string{filepath.Join(dir, "out", "run-id"), filepath.Join(state, installation.DeploymentFile)} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	check(t, rollout(t.Context(), "infer", "batch", "--config", cfg), 0, "", "completed: 1 of 1")
}

func TestBatchWithFailuresNamesErrorsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.jsonl": "{\"prompt\":\"p\"}\n[1]\n",
		"batch.toml": fmt.Sprintf("[model]\nuri = \"m\"\n[engine]\nurl = \"mock\"\n[input]\nglob = %q\n[output]\ndir = %q\n",
			filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "out")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	errors := filepath.Join(dir, "out", "errors.jsonl")
	check(t, rollout(t.Context(), "infer", "batch", "--config", filepath.Join(dir, "batch.toml")), 1, "",
		"1 of 2 items failed (see "+errors+")")
	if _, err := os.Stat(errors); err != nil {
		t.Error(err)
	}
}
