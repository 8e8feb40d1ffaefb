package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rollout/localstack/subprocess"
)

// TestMain runs the tests, or, in a process that start starts, a function that
// polls once.
func TestMain(m *testing.M) {
	api := os.Getenv("AWS_LAMBDA_RUNTIME_API")
	if api != "" && strings.Contains(os.Getenv("ROLLOUT_CONFIG"), "acme-batches") {
		if r, err := http.Get("http://" + api + "/2018-06-01/runtime/invocation/next"); err == nil {
			_ = r.Body.Close() // it is empty
		}
		return
	}
	subprocess.EndWithGoTest()
	os.Exit(m.Run())
}

// folder makes a folder with one function, which is the given program.
func folder(t *testing.T, program string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "f"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(program, filepath.Join(dir, "f", bootstrap)); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestPollTimesMeasuresUntilTheFirstPoll(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	times, err := pollTimes(t.Context(), filepath.Join(folder(t, self), "f", bootstrap), 3)
	if err != nil || len(times) != 3 {
		t.Fatalf("got %v, %v; want three times", times, err)
	}
	for _, d := range times {
		if d <= 0 || d > startTimeout {
			t.Errorf("the starts took %v, want between 0 and %v", times, startTimeout)
		}
	}
}

func TestCheckFailsForAFunctionThatEndsAndForNoFunction(t *testing.T) {
	t.Parallel()
	failing, err := exec.LookPath("false")
	if err != nil {
		t.Skip("this machine does not have the program false")
	}
	dir := folder(t, failing)
	err = check(t.Context(), &strings.Builder{}, dir, dir)
	if err == nil || !strings.Contains(err.Error(), "ended before it asked for an event") {
		t.Errorf("a function that ends: got %v", err)
	}
	err = check(t.Context(), &strings.Builder{}, t.TempDir(), dir)
	if err == nil || !strings.Contains(err.Error(), "make lambda") {
		t.Errorf("an empty folder: got %v", err)
	}
}

func TestSizesCountsTheWholeFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), bootstrap)
	if err := os.WriteFile(path, []byte(strings.Repeat("rollout ", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	file, archive, err := sizes(path)
	if err != nil || file != 80_000 || archive < 100 || archive > 8_000 {
		t.Errorf("got a file of %d bytes in an archive of %d, %v", file, archive, err)
	}
}
