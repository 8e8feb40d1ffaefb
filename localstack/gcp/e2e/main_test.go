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

// Paths of the programs that TestMain builds: that with all functions, and the
// worker.
var functions, gpuworker string

// Flags of TestDisturbedRuns and TestManyWorkers.
var (
	rounds  = flag.Int("rounds", 1, "`number` of disturbed runs")
	seed    = flag.Uint64("seed", 1, "`seed` of the first disturbed run")
	workers = flag.Int("workers", 20, "`number` of workers of one run")
)

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

// build builds the programs and runs the tests.
func build(m *testing.M) (code int, err error) {
	if testing.Short() {
		return m.Run(), nil
	}
	source := filepath.Join("..", "..", "..")
	if err := noteSources(source); err != nil {
		return 1, err
	}
	folder, err := filepath.Abs(filepath.Join(source, "out", "emulated", "gcp"))
	if err != nil {
		return 1, err
	}
	functions, gpuworker = filepath.Join(folder, "functions"), filepath.Join(folder, "gpuworker")
	for program, from := range map[string]string{functions: "./functions/gcp", gpuworker: "./gpuworker"} {
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, from)
		cmd.Dir = source
		cmd.Env = append(cmd.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return 1, fmt.Errorf("build %s: %w\n%s", from, err, out)
		}
	}
	return m.Run(), nil
}

// noteSources reads the folders of the programs' source, so that `go test` discards
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
