package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"rollout/localstack/scenarios"
	"rollout/localstack/subprocess"
)

// source is the root of the repository.
const source = "../../.."

// Paths of the programs that TestMain builds: that with all functions, the worker, and the
// command line.
var functions, gpuworker, commandLine string

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
	if err := scenarios.NoteSources(source); err != nil {
		return 1, err
	}
	folder, err := filepath.Abs(filepath.Join(source, "out", "emulated", "gcp"))
	if err != nil {
		return 1, err
	}
	functions, gpuworker = filepath.Join(folder, "functions"), filepath.Join(folder, "gpuworker")
	commandLine = filepath.Join(folder, "rollout")
	if err := scenarios.Build(context.Background(), source, map[string]string{functions: "./functions/gcp",
		gpuworker: "./gpuworker", commandLine: "./scripts/rollout"}); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
