package e2e

import (
	"context"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"rollout/localstack/aws/fakeaws"
	"rollout/localstack/subprocess"
)

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
	source := filepath.Join("..", "..", "..")
	if err := noteSources(source); err != nil {
		return 1, err
	}
	if programs, err = fakeaws.Build(context.Background(), source, filepath.Join(source, "out", "emulated")); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

// noteSources reads the folders of the programs' source, so that `go test` discards
// a cached result once one of the files has changed.
func noteSources(source string) error {
	for _, top := range []string{"events", "shared", "functions", "gpuworker", "scripts", "localstack/fakellm"} {
		if err := filepath.WalkDir(filepath.Join(source, top),
			func(_ string, _ fs.DirEntry, err error) error { return err }); err != nil {
			return err
		}
	}
	return nil
}

// Polling for what other processes do.
const (
	patience = 15 * time.Minute
	pollGap  = 25 * time.Millisecond
)

// eventually polls until ok returns true. It fails the test after patience.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(pollGap)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("this did not happen within %s: %s", patience, what)
		}
	}
}
