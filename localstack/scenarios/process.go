package scenarios

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"rollout/localstack/subprocess"
)

// Output collects what several processes write. It is safe for concurrent use.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write appends to the output.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String returns all output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// End returns the last part of a text.
func End(text string) string { return text[max(0, len(text)-10_000):] }

// Build builds programs of the product as they are deployed. programs maps a path to the
// package, such as "./gpuworker", in the folder source.
func Build(ctx context.Context, source string, programs map[string]string) error {
	for path, from := range programs {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, from)
		cmd.Dir = source
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", from, err, out)
		}
	}
	return nil
}

// NoteSources reads the folders of the programs' source, so that `go test` discards a
// cached result once one of the files has changed. source is the root of the repository.
func NoteSources(source string) error {
	for _, top := range []string{"events", "shared", "functions", "gpuworker", "scripts", "localstack/fakellm",
		"localstack/clerk"} { // what the programs link
		if err := filepath.WalkDir(filepath.Join(source, top),
			func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
			return err
		}
	}
	return nil
}

// Rollout runs the command line to its end and returns its output. Its environment has
// nothing of this process's but PATH.
func Rollout(t *testing.T, program string, environment []string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, environment...)
	cmd.Env = append(cmd.Env, "HOME="+t.TempDir())
	out := &Output{}
	cmd.Stdout, cmd.Stderr = out, out
	err := subprocess.Run(cmd)
	return out.String(), err
}

// Polling for what other processes do.
const (
	patience = 15 * time.Minute
	pollGap  = 25 * time.Millisecond
)

// Eventually polls until ok returns true. It fails the test after a quarter of an hour.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(pollGap)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("this did not happen within %s: %s", patience, what)
		}
	}
}

// Write writes a file and returns its path.
func Write(t *testing.T, folder, name, content string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
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
