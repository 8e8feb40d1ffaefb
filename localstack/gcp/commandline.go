package emulators

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"rollout/localstack/subprocess"
)

// CommandLine is the program rollout, built for tests.
type CommandLine struct{ binary string }

// BuildRollout builds the program.
func BuildRollout(t testing.TB) CommandLine {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "rollout")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", binary, "./scripts/rollout")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build rollout: %v\n%s", err, out)
	}
	return CommandLine{binary}
}

// CommandResult is the result of one command line.
type CommandResult struct {
	Stdout, Stderr string
	ExitCode       int
}

// Run runs a command line. Its environment has the given variables and those that
// every process needs, and none of the test's.
func (c CommandLine) Run(ctx context.Context, t testing.TB, environment []string, args ...string) CommandResult {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, c.binary, args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, environment...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := subprocess.Run(cmd)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return CommandResult{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}
