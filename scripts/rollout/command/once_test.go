package command_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// A retry that was requested while the product did not run is not a run yet. `up --once` waits until it is one, and
// completes it.
func TestOnceCompletesARequestedRetry(t *testing.T) {
	t.Parallel()
	var mended atomic.Bool
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "completions") && !mended.Load() {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"error":{"message":"not this one","code":"content_policy_violation"}}`)
			return
		}
		_, _ = io.WriteString(w, yesResponse)
	}))
	t.Cleanup(engine.Close)
	dir := newUploads(t, prompt)
	up := []string{"up", "--dir", dir, "--engine", engine.URL + "/v1", "--once", "--listen", "off"}
	if r := rolloutNow(t.Context(), up...); r.code != 1 {
		t.Fatalf("exit code %d with a server that refuses: %s", r.code, r.err)
	}
	runs := filepath.Join(dir, "bucket", "runs")
	parents, err := os.ReadDir(runs)
	if err != nil || len(parents) != 1 {
		t.Fatalf("the runs are %v, %v", parents, err)
	}
	mended.Store(true)
	retry := rolloutNow(t.Context(), "retry", parents[0].Name(), "--dir", dir)
	if retry.code != 0 {
		t.Fatal(retry.err)
	}
	if r := rolloutNow(t.Context(), up...); r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.err)
	}
	got, err := os.ReadFile(filepath.Join(runs, strings.TrimSpace(retry.out), "completions.jsonl"))
	if err != nil || !strings.Contains(string(got), `"completion":"yes`) {
		t.Errorf("the child has the answers %s, %v", got, err)
	}
}

// Whatever lies among the prompts: each file is a run, a refused run, or named with the reason, and `up --once` ends.
func TestOnceEndsWhateverIsAmongThePrompts(t *testing.T) {
	t.Parallel()
	dir := newUploads(t)
	const version = "schema_version = 1\n"
	folder := filepath.Join(dir, "bucket", "prompts")
	if err := os.MkdirAll(filepath.Join(folder, "folder.toml"), 0o755); err != nil {
		t.Fatal(err)
	}
	put := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, cfg := range map[string]string{
		"good": version, "nan": version + "sampling.temperature = nan\n", "inf": version + "sampling.top_p = -inf\n",
		"huge": version + "sampling.stop = [" + strings.Repeat(`"`+strings.Repeat("x", 100)+`",`, 4000) + "]",
	} {
		put(name+".toml", cfg)
		put(name+".jsonl", prompt+"\n")
	}
	for _, name := range []string{"linked", "folder"} {
		put(name+".jsonl", prompt+"\n")
	}
	put("table.csv", "prompt\nx\n")
	for link, to := range map[string]string{"linked.toml": "good.toml", "link.jsonl": "good.jsonl"} {
		if err := os.Symlink(to, filepath.Join(folder, link)); err != nil {
			t.Fatal(err)
		}
	}
	r := rolloutNow(t.Context(), "up", "--dir", dir, "--engine", "mock", "--once", "--listen", "off")
	for _, want := range []string{
		"(good) completed: 1 of 1 item answered",
		"read prompts/folder.toml: it is not a regular file (put a file there, or remove it)",
		"prompts/nan.toml:2: sampling.temperature: must be at least 0 and at most 2, is NaN",
		"prompts/inf.toml:2: sampling.top_p: must be above 0 and at most 1, is -Inf",
		"sampling.stop: has 4000 strings, at most", "read prompts/linked.toml",
		"prompts/link.jsonl: it is not a file: ", "a bucket does not follow symbolic links: move or copy the file there",
		"prompts/table.csv: ", "rollout convert table.csv table.jsonl",
	} {
		if !strings.Contains(r.err, want) {
			t.Errorf("stderr lacks %q", want)
		}
	}
	if r.code != 1 || t.Failed() {
		t.Errorf("exit code %d:\n%s", r.code, r.err)
	}
}
