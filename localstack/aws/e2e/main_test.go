package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"rollout/localstack/aws/fakeaws"
	"rollout/localstack/scenarios"
	"rollout/localstack/subprocess"
)

// source is the root of the repository.
const source = "../../.."

// The programs under test, which TestMain builds, and the flags.
var (
	programs fakeaws.Programs
	rounds   = flag.Int("rounds", 3, "`number` of disturbed runs")
	seed     = flag.Uint64("seed", 1, "`seed` of the first disturbed run")
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
	if programs, err = fakeaws.Build(context.Background(), source, filepath.Join(source, "out", "emulated")); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
