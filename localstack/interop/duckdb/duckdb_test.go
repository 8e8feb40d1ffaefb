package duckdb

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"rollout/localstack/scenarios"
	"rollout/localstack/subprocess"
)

// python returns the interpreter that has DuckDB.
func python(t *testing.T) string {
	t.Helper()
	path := filepath.Join("..", "..", "..", "out", "duckdb", "bin", "python")
	if _, err := os.Stat(path); err != nil {
		const missing = "DuckDB is not installed: run `make duckdb`"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	if _, err := os.ReadDir("."); err != nil { // a cached result is discarded if the script has changed
		t.Fatal(err)
	}
	return path
}

func TestDuckDBQueriesARunWhileItGoesOn(t *testing.T) {
	t.Parallel()
	interpreter := python(t)
	if err := scenarios.NoteSources(filepath.Join("..", "..", "..")); err != nil {
		t.Fatal(err)
	}
	built, folder := t.TempDir(), t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", built+"/", "rollout/scripts/rollout",
		"rollout/scripts/fakellm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	engine := start(t, `^(http://\S+)`, filepath.Join(built, "fakellm"), "--hang", "hang on this one")
	api := start(t, `\(API at (http://[^)]+)\)`, filepath.Join(built, "rollout"), "up", "--dir", folder,
		"--engine", engine, "--workers", "0", "--listen", "127.0.0.1:0")
	out, err := exec.CommandContext(t.Context(), interpreter, "check.py", folder, api).CombinedOutput()
	if err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	t.Logf("%s", out)
}

// start starts a program and returns what the pattern finds in a line that it writes.
func start(t *testing.T, pattern, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() // the program has its own
	cmd.Stdout, cmd.Stderr = w, w
	if err := subprocess.Start(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		_ = r.Close()
	})
	want, lines := regexp.MustCompile(pattern), bufio.NewScanner(r)
	var seen []string
	for lines.Scan() {
		if m := want.FindStringSubmatch(lines.Text()); m != nil {
			go func() { _, _ = io.Copy(io.Discard, r) }() // it must not wait for a reader
			return m[1]
		}
		seen = append(seen, lines.Text())
	}
	t.Fatalf("%s does not start: %q", program, seen)
	return ""
}
