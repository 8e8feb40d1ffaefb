package command_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/shared/config"
)

const threePrompts = `{"id":"a","prompt":"In the beginning"}
{"id":"b","messages":[{"role":"user","content":"And God said"}]}
{"id":"c","prompt":"The rays of light"}`

// readCompletions returns the completions in a file by id. All must come from the built-in model.
func readCompletions(t *testing.T, pattern string) map[string]string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	content, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for line := range bytes.Lines(content) {
		var row struct {
			ID         string
			Completion string
			Model      string `json:"model_uri"`
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		if row.Model != config.ModelTiny || row.Completion == "" {
			t.Errorf("%s", line)
		}
		texts[row.ID] = row.Completion
	}
	return texts
}

func TestUpWithoutEngineUsesBuiltInModel(t *testing.T) {
	t.Parallel()
	var first map[string]string
	for range 2 {
		dir := newUploads(t, threePrompts)
		check(t, rolloutNow(t.Context(), "up", "--dir", dir, "--once", "--listen", "off"), 0, "",
			"completed: 3 of 3 items answered")
		texts := readCompletions(t, filepath.Join(dir, "bucket", "runs", "*", "completions.jsonl"))
		if first == nil {
			first = texts
		}
		if len(texts) != 3 || fmt.Sprint(texts) != fmt.Sprint(first) {
			t.Errorf("%q, another time %q", first, texts)
		}
	}
}

// newTinyBatch writes the config of a batch without an engine. It returns the paths of the config and of the output
// folder.
func newTinyBatch(t *testing.T, model string) (cfg, out string) {
	t.Helper()
	dir := t.TempDir()
	out = filepath.Join(dir, "out")
	for name, text := range map[string]string{"a.jsonl": threePrompts,
		"batch.toml": fmt.Sprintf("[model]\nuri = %q\n[sampling]\nmax_tokens = 9\n[input]\nglob = %q\n[output]\ndir = %q\n",
			model, filepath.Join(dir, "a.jsonl"), out)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "batch.toml"), out
}

func TestBatchWithoutEngineUsesBuiltInModel(t *testing.T) {
	t.Parallel()
	cfg, out := newTinyBatch(t, config.ModelTiny)
	check(t, rolloutNow(t.Context(), "infer", "batch", "--config", cfg), 0, "", "completed: 3 of 3 items answered")
	if texts := readCompletions(t, filepath.Join(out, "completions.jsonl")); len(texts) != 3 {
		t.Errorf("%q", texts)
	}
	check(t, rolloutNow(t.Context(), "infer", "batch", "--config", cfg), 0, "",
		"completed: 3 of 3 items answered") // again with the same weights
}

func TestBuiltInModelDoesNotReplaceOthers(t *testing.T) {
	t.Parallel()
	const model = "Qwen/Qwen2.5-0.5B-Instruct"
	cfg, out := newTinyBatch(t, model)
	check(t, rolloutNow(t.Context(), "infer", "batch", "--config", cfg), 2, "", "the model "+model+" has no engine",
		"--engine")
	check(t, rolloutNow(t.Context(), "infer", "batch", "--config", cfg, "--engine", "tiny"), 2, "",
		"the model "+model+" has no engine")
	if _, err := os.Stat(filepath.Join(out, "completions.jsonl")); !os.IsNotExist(err) {
		t.Errorf("%v", err)
	}
	dir := newUploads(t, threePrompts)
	check(t, rolloutNow(t.Context(), "up", "--dir", dir, "--model", model, "--once", "--listen", "off"), 2, "",
		"the model "+model+" has no engine")
	pools := fmt.Sprintf("schema_version = 1\n[[pool]]\nname = \"large\"\nmodel = %q\n", model)
	if err := os.WriteFile(filepath.Join(dir, "rollout.toml"), []byte(pools), 0o600); err != nil {
		t.Fatal(err)
	}
	check(t, rolloutNow(t.Context(), "up", "--dir", dir, "--once", "--listen", "off"), 2, "",
		"the model "+model+" has no engine")
}

func TestBatchWithOtherModelRevisionIsRefused(t *testing.T) {
	t.Parallel()
	cfg, out := newTinyBatch(t, config.ModelTiny)
	check(t, rolloutNow(t.Context(), "infer", "batch", "--config", cfg), 0, "", "completed")
	text, err := os.ReadFile(cfg)
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(string(text), "[sampling]", "revision = \"of long ago\"\n[sampling]", 1)
	if err := os.WriteFile(cfg, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(out); err != nil {
		t.Fatal(err)
	}
	check(t, rolloutNow(t.Context(), "infer", "batch", "--config", cfg), 1, "", "serves the revision", "not of long ago")
}
