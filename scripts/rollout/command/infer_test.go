package command_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
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

// The commands of hints work as they are printed: they name the folder of the batch's state.
func TestHintsOfABatchNameItsFolder(t *testing.T) {
	t.Parallel()
	refusing := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			http.NotFound(w, r)
			return
		}
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = io.WriteString(w, `{"error":{"message":"no quota","type":"insufficient_quota","code":"insufficient_quota"}}`)
	}))
	defer refusing.Close()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.jsonl": `{"prompt":"p"}`,
		"batch.toml": fmt.Sprintf("[model]\nuri = \"m\"\n[engine]\nurl = %q\n[input]\nglob = %q\n[output]\ndir = %q\n",
			refusing.URL, filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "out")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := rolloutNow(t.Context(), "infer", "batch", "--config", filepath.Join(dir, "batch.toml"))
	hint := regexp.MustCompile("`rollout (resume [^`]+)`").FindStringSubmatch(r.err)
	if r.code != 1 || hint == nil {
		t.Fatalf("%+v", r)
	}
	if resumed := rolloutNow(t.Context(), strings.Fields(hint[1])...); resumed.code != 0 {
		t.Errorf("rollout %s: %+v", hint[1], resumed)
	}
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
