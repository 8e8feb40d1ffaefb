package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"rollout/localstack/subprocess"
)

// root is the repository's root.
const root = "../.."

// serverVariable names the server that the suite runs against.
const serverVariable = "ROLLOUT_TEST_SERVER"

// patience bounds each wait, on a busy machine too: a vLLM imports for a minute.
const patience = 8 * time.Minute

// rollout is the path of the program under test. Only TestMain writes it.
var rollout string

func TestMain(m *testing.M) {
	subprocess.EndWithGoTest()
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "servers:", err)
		code = 1
	}
	os.Exit(code)
}

// buildAndRun builds the program, if the suite runs, and runs the tests.
func buildAndRun(m *testing.M) (code int, err error) {
	if os.Getenv(serverVariable) == "" {
		return m.Run(), nil
	}
	folder, err := os.MkdirTemp("", "rollout-servers-*")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	rollout = filepath.Join(folder, "rollout")
	if out, err := exec.Command("go", "build", "-o", rollout, "rollout/scripts/rollout").CombinedOutput(); err != nil {
		return 1, fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// capabilities are what the suite expects of a server.
type capabilities struct {
	server Server
	// equal is how many of the example prompts it answers at least as the built-in
	// model does.
	equal int
	// toolChoice makes it call the tool judge, once; "" if it calls no tools for a model
	// whose chat template has none.
	toolChoice string
	// tooLong is in its words about a prompt that does not fit.
	tooLong string
}

// expected are the servers with what the suite expects of them.
func expected() []capabilities {
	return []capabilities{
		{server: VLLM(), equal: 240, tooLong: "context length is only",
			toolChoice: `{"type":"function","function":{"name":"judge"}}`},
		{server: LlamaCPP(), equal: 239, tooLong: "exceeds the available context size"},
	}
}

// underTest returns the server of the environment. It skips the test without one, and
// on a machine that the server cannot run on.
func underTest(t *testing.T) capabilities {
	t.Helper()
	name := os.Getenv(serverVariable)
	if name == "" {
		t.Skipf("runs only with %s, as in `make test-vllm` and `make test-llamacpp-server`", serverVariable)
	}
	for _, c := range expected() {
		if c.server.Name != name {
			continue
		}
		if err := c.server.Check(root); errors.Is(err, ErrUnfit) {
			t.Skip(err)
		} else if err != nil {
			t.Fatal(err)
		}
		return c
	}
	t.Fatalf("%s=%s is not a server", serverVariable, name)
	return capabilities{}
}

// serve starts the server over the built-in model and waits until it answers.
func serve(t *testing.T, s Server, o Options) *Running {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	folder := t.TempDir()
	model, err := s.Export(ctx, rollout, folder)
	if err != nil {
		t.Fatal(err)
	}
	o.Root, o.Model, o.Log = root, model, filepath.Join(folder, "server.log")
	o.Slots = 16
	r, err := s.Run(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("%s:\n%s", s.Name, tail(o.Log))
		}
	})
	start := time.Now()
	if err := r.AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s is ready after %s", s.Name, time.Since(start).Round(time.Second))
	return r
}

const maxTail = 6 << 10 // bytes

// tail returns the end of a file.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-maxTail):])
}
