package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"rollout/localstack/subprocess"
	"strings"
	"testing"
)

// TestMain is a function that polls, if it was started as one; else the tests.
func TestMain(m *testing.M) {
	if at := os.Getenv("AWS_LAMBDA_RUNTIME_API"); at != "" && strings.Contains(os.Getenv("ROLLOUT_CONFIG"), "acme-batches") {
		if r, err := http.Get("http://" + at + "/2018-06-01/runtime/invocation/next"); err == nil {
			_ = r.Body.Close() // nothing is in it
		}
		return
	}
	subprocess.EndWithGoTest()
	os.Exit(m.Run())
}

// builds makes a folder in which one function has that program.
func builds(t *testing.T, program string) string {
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

func TestAStartIsTheTimeUntilTheFirstPoll(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	took, err := pollTimes(t.Context(), filepath.Join(builds(t, self), "f", bootstrap), 3)
	if err != nil || len(took) != 3 {
		t.Fatalf("%v, %v", took, err)
	}
	for _, d := range took {
		if d <= 0 || d > patience {
			t.Errorf("it took %v", took)
		}
	}
}

func TestWhatIsOverItsBudgetIsAnError(t *testing.T) {
	t.Parallel()
	no, err := exec.LookPath("false")
	if err != nil {
		t.Skip("this machine has no program that fails")
	}
	dir := builds(t, no)
	if err := check(t.Context(), &strings.Builder{}, dir, dir); err == nil || !strings.Contains(err.Error(), "asked for no event") {
		t.Errorf("a function that ends: %v", err)
	}
	if err := check(t.Context(), &strings.Builder{}, t.TempDir(), dir); err == nil {
		t.Error("of nothing it says nothing")
	}
}

func TestAnArchiveHoldsTheWholeFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), bootstrap)
	if err := os.WriteFile(path, []byte(strings.Repeat("rollout ", 10_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	file, archive, err := sizes(path)
	if err != nil || file != 80_000 || archive < 100 || archive > 8_000 {
		t.Errorf("%d bytes in an archive of %d, %v", file, archive, err)
	}
}
