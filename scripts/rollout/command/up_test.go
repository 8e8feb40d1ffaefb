package command_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/scripts/rollout/command"
	"rollout/shared/clock"
	"rollout/shared/installation"
)

// rolloutNow runs a command line with the real clock.
func rolloutNow(ctx context.Context, args ...string) result {
	var out, errs bytes.Buffer
	code := command.Main(ctx, args, command.Env{Out: &out, Err: &errs, Clock: clock.System{}, Getenv: noEnv})
	return result{code, out.String(), errs.String()}
}

// newUploads creates an installation's folder with prompts files of one line each, which have not become runs yet.
func newUploads(t *testing.T, lines ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i, line := range lines {
		file := filepath.Join(t.TempDir(), fmt.Sprintf("file-%02d.jsonl", i))
		if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if r := rolloutNow(t.Context(), "submit", file, "--dir", dir); r.code != 0 {
			t.Fatal(r.err)
		}
	}
	return dir
}

const prompt = `{"id":"a","prompt":"Hello"}`

func TestUpOnceWithoutPromptsSaysSo(t *testing.T) {
	t.Parallel()
	dir := newUploads(t)
	check(t, rolloutNow(t.Context(), "up", "--dir", dir, "--engine", "mock", "--once", "--listen", "off"), 0, "",
		"nothing to answer: no new prompts file (.jsonl, .jsonl.gz, .jsonl.zst) is in "+
			filepath.Join(dir, "bucket", "prompts"))
}

func TestUpOnceShowsTheSummary(t *testing.T) {
	t.Parallel()
	dir := newUploads(t, prompt)
	up := []string{"up", "--dir", dir, "--engine", "mock", "--once", "--listen", "off"}
	check(t, rolloutNow(t.Context(), up...), 0, "", "(file-00) completed: 1 of 1 item answered",
		"completions "+filepath.Join(dir, "bucket", "runs"), "first completions:\n  a  Hello → MOCK:Hello")
	check(t, rolloutNow(t.Context(), up...), 0, "", "nothing to answer")
}

func TestUpOnceOfManyFilesShowsOneLineEach(t *testing.T) {
	t.Parallel()
	lines := strings.Split(strings.Repeat(prompt+"\n", 12), "\n")[:12]
	dir := newUploads(t, append(lines, "no prompt")...)
	r := rolloutNow(t.Context(), "up", "--dir", dir, "--engine", "mock", "--once", "--listen", "off")
	if r.code != 1 || !strings.Contains(r.err, "1 of 1 item failed") {
		t.Errorf("one of them did not end well: %+v", r)
	}
	if n := strings.Count(r.err, " completed: 1 of 1 item answered"); n != 12 {
		t.Errorf("%d of 12 runs are shown:\n%s", n, r.err)
	}
}

func TestInterruptedUpSaysHowToContinue(t *testing.T) {
	t.Parallel()
	dir := newUploads(t, prompt)
	ctx, cancel := context.WithCancel(t.Context())
	var out bytes.Buffer
	errs := newSyncBuffer()
	ended := make(chan int)
	go func() {
		ended <- command.Main(ctx, []string{"up", "--dir", dir, "--engine", "http://127.0.0.1:9/v1", "--model", "m",
			"--once", "--listen", "off"},
			command.Env{Out: &out, Err: errs, Clock: clock.System{}, Getenv: noEnv})
	}()
	<-errs.first // the run is shown
	cancel()
	if code := <-ended; code != 1 || !strings.Contains(errs.String(), "start the same command again to continue") {
		t.Errorf("exit code %d; stderr:\n%s", code, errs)
	}
}

// The bucket of one installation is a link into another one's, which works, or into one of
// which it is a copy, where only one works at a time.
func TestUpAndSubmitRefuseTheBucketOfAnotherInstallation(t *testing.T) {
	t.Parallel()
	up := func(dir string) result {
		return rolloutNow(t.Context(), "up", "--dir", dir, "--engine", "mock", "--once", "--listen", "off")
	}
	first, second, file := newUploads(t, prompt), t.TempDir(), filepath.Join(t.TempDir(), "x.jsonl")
	if r := up(first); r.code != 0 {
		t.Fatal(r.err)
	}
	if err := errors.Join(os.WriteFile(file, []byte(prompt+"\n"), 0o600),
		os.Symlink(filepath.Join(first, "bucket"), filepath.Join(second, "bucket"))); err != nil {
		t.Fatal(err)
	}
	refusal := []string{"the bucket of " + second + " belongs to another installation: " + first,
		"let " + filepath.Join(second, "bucket") + " be a folder of its own",
		"remove " + filepath.Join(second, "bucket", "rollout-installation.json")}
	check(t, rolloutNow(t.Context(), "submit", file, "--dir", second), 2, "", refusal...)
	check(t, up(second), 2, "", refusal...)

	if err := errors.Join(os.RemoveAll(filepath.Join(second, "state")),
		os.CopyFS(filepath.Join(second, "state"), os.DirFS(filepath.Join(first, "state")))); err != nil {
		t.Fatal(err)
	}
	release, err := installation.LockBucket(first) // as `up` does
	if err != nil {
		t.Fatal(err)
	}
	check(t, up(second), 2, "", fmt.Sprintf("process %d already runs an installation over the bucket", os.Getpid()))
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if r := up(second); r.code != 0 {
		t.Errorf("the copy, once the other has ended: %s", r.err)
	}
}
