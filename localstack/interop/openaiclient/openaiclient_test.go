package openaiclient

import (
	"bufio"
	"io"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"testing"

	"rollout/gpuworker/engine/tiny"
	"rollout/localstack/scenarios"
	"rollout/localstack/subprocess"
	"rollout/localstack/tinytest"
	"rollout/scripts/rollout/serve"
	"rollout/shared/clock"
	"rollout/shared/secret"
)

// installed returns the Python that has OpenAI's client.
func installed(t *testing.T) string {
	t.Helper()
	python := filepath.Join("..", "..", "..", "out", "openaiclient", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		const missing = "OpenAI's client is not installed: run `make openai-client`"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	if _, err := os.ReadDir("."); err != nil { // a cached result is discarded if a script has changed
		t.Fatal(err)
	}
	return python
}

// The client runs the whole life of batches over `rollout up`.
func TestOpenAIsClientRunsBatches(t *testing.T) {
	t.Parallel()
	python := installed(t)
	if err := scenarios.NoteSources(filepath.Join("..", "..", "..")); err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", programs+"/", "rollout/scripts/rollout",
		"rollout/scripts/fakellm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	engine := start(t, `^(http://\S+)`, filepath.Join(programs, "fakellm"), "--latency", "5ms")
	api := start(t, `\(API at (http://[^)]+)\)`, filepath.Join(programs, "rollout"), "up", "--dir", t.TempDir(),
		"--engine", engine, "--workers", "0", "--listen", "127.0.0.1:0")
	out, err := exec.CommandContext(t.Context(), python, "batches.py", api+"/v1").CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
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
		if len(seen) == 100 {
			break
		}
	}
	t.Fatalf("%s does not start: %q", program, seen)
	return ""
}

// The client gets completions and chats of `rollout serve`.
func TestOpenAIsClientWorksWithTheServer(t *testing.T) {
	t.Parallel()
	python := installed(t)
	e, err := tiny.New(tiny.Config{
		Name: "untrained", Model: tiny.Decoder(tinytest.Model(t, tinytest.Config()), 1),
		Tokenizer: tinytest.Tokenizer(t), ChatTurns: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const token = "a-token-of-the-test"
	var seed atomic.Uint64
	s := serve.New(serve.Config{
		Engine: e, Clock: clock.System{}, Log: slog.New(slog.DiscardHandler),
		Rand: func() uint64 { return seed.Add(1) },
	})
	h := httptest.NewServer(serve.Bounds().Guard(secret.NewValue(token), s, serve.PublicPaths()...))
	defer h.Close()
	out, err := exec.CommandContext(t.Context(), python, "check.py", h.URL+"/v1", token).CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
