package e2e

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The programs under test, built once.
const (
	rollout   = "rollout"
	gpuworker = "gpuworker"
	fakellm   = "fakellm"
)

// binaries is the folder that they are in; TestMain alone writes it.
var binaries string

func TestMain(m *testing.M) {
	if signal.Ignored(syscall.SIGHUP) { // under nohup; the programs would leave it so
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // for programs, it is then as it is by default
	}
	code, err := build(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// build builds the programs and runs the tests.
func build(m *testing.M) (code int, err error) {
	flag.Parse()
	// These tests wait for processes most of the time: more of them may run at
	// once than there are processors.
	if err := flag.Set("test.parallel", "6"); err != nil {
		return 1, err
	}
	if err := noteSources(); err != nil {
		return 1, err
	}
	if binaries, err = os.MkdirTemp("", "rollout-e2e-*"); err != nil {
		return 1, err
	}
	defer func() {
		if removed := os.RemoveAll(binaries); err == nil {
			err = removed
		}
	}()
	args := []string{"build", "-o", binaries + "/", "rollout/scripts/rollout", "rollout/gpuworker", "rollout/scripts/fakellm"}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// noteSources reads the folders that the programs are made of: `go test` then
// knows that a cached result does not hold once one of their files changed.
func noteSources() error {
	for _, top := range []string{"events", "shared", "functions", "gpuworker", "scripts", "localstack/fakellm"} {
		err := filepath.WalkDir(filepath.Join("..", "..", top), func(_ string, _ fs.DirEntry, err error) error { return err })
		if err != nil {
			return err
		}
	}
	return nil
}

// Polling for what other processes do.
const (
	patience = 60 * time.Second
	pollGap  = 25 * time.Millisecond
)

// eventually polls until ok; the test fails if that takes longer than
// patience.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(pollGap)
	defer tick.Stop()
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("within %s it did not happen that %s", patience, what)
		}
		<-tick.C
	}
}

// read returns a file's content.
func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// write makes a file, and its folder.
func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// lines splits at line ends; what is after the last one must be nothing.
func lines(t *testing.T, content string) []string {
	t.Helper()
	if content == "" {
		return nil
	}
	rest, ok := strings.CutSuffix(content, "\n")
	if !ok {
		t.Errorf("the last line has no end: %.100q", content)
	}
	return strings.Split(rest, "\n")
}
