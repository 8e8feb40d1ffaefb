package e2e

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"rollout/localstack/subprocess"
)

// program is the path of the program with all functions, which TestMain builds.
var program string

func TestMain(m *testing.M) {
	subprocess.EndWithGoTest()
	flag.Parse()
	code, err := build(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

// build builds the program and runs the tests.
func build(m *testing.M) (code int, err error) {
	if testing.Short() {
		return m.Run(), nil
	}
	source := filepath.Join("..", "..", "..")
	if err := noteSources(source); err != nil {
		return 1, err
	}
	if program, err = filepath.Abs(filepath.Join(source, "out", "emulated", "gcp-functions")); err != nil {
		return 1, err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, "./functions/gcp")
	cmd.Dir = source
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the functions: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// noteSources reads the folders of the program's source, so that `go test` discards
// a cached result once one of the files has changed.
func noteSources(source string) error {
	for _, top := range []string{"events", "shared", "functions", "gpuworker"} {
		if err := filepath.WalkDir(filepath.Join(source, top),
			func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
			return err
		}
	}
	return nil
}
