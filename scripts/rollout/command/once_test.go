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
	retry := rolloutNow(t.Context(), "run", "retry", parents[0].Name(), "--dir", dir)
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
