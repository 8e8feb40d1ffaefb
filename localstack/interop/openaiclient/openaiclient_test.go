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
	"rollout/gpuworker/serve"
	"rollout/localstack/scenarios"
	"rollout/localstack/subprocess"
	"rollout/localstack/tinytest"
	"rollout/shared/clock"
	"rollout/shared/secret"
)

// installed returns the folder that has OpenAI's clients.
func installed(t *testing.T) string {
	t.Helper()
	folder := filepath.Join("..", "..", "..", "out", "openaiclient")
	if _, err := os.Stat(filepath.Join(folder, "installed")); err != nil {
		const missing = "OpenAI's clients are not installed: run `make openai-client`"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	if _, err := os.ReadDir("."); err != nil { // a cached result is discarded if a script has changed
		t.Fatal(err)
	}
	return folder
}

// pythonOf and nodeOf are the interpreters for which the folder has clients.
func pythonOf(folder string) string { return filepath.Join(folder, "python", "bin", "python") }

func nodeOf(folder string) string { return filepath.Join(folder, "bin", "node") }

// The clients run the whole life of batches over `rollout up`, each over one of its own: both
// list all batches.
func TestOpenAIsClientsRunBatches(t *testing.T) {
	t.Parallel()
	folder := installed(t)
	built := programs(t)
	for client, command := range map[string][]string{
		"Python": {pythonOf(folder), "batches.py"},
		"Node":   {nodeOf(folder), "batches.mjs", folder},
	} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			api := up(t, built) + "/v1"
			run(t, append(command, api)...)
			if client == "Python" {
				run(t, pythonOf(folder), "online.py", api)
			}
		})
	}
}

// LiteLLM's library runs a batch; it needs the address of the API and no more.
func TestLiteLLMRunsABatch(t *testing.T) {
	t.Parallel()
	folder := installed(t)
	run(t, pythonOf(folder), "litellm_batch.py", up(t, programs(t))+"/v1")
}

// programs builds the programs, and returns their folder.
func programs(t *testing.T) string {
	t.Helper()
	if err := scenarios.NoteSources(filepath.Join("..", "..", "..")); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", folder+"/", "rollout/scripts/rollout",
		"rollout/scripts/fakellm")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the programs: %v\n%s", err, out)
	}
	return folder
}

// up starts an installation with a scripted server, and returns the address of its API. The
// server never answers prompts with "hang on this one".
func up(t *testing.T, built string) string {
	t.Helper()
	engine := start(t, `^(http://\S+)`, filepath.Join(built, "fakellm"), "--latency", "5ms", "--hang", "hang on this one")
	return start(t, `\(API at (http://[^)]+)\)`, filepath.Join(built, "rollout"), "up", "--dir", t.TempDir(),
		"--engine", engine, "--workers", "0", "--listen", "127.0.0.1:0")
}

// run runs a script, whose exit code is the number of checks that failed.
func run(t *testing.T, command ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "LITELLM_LOCAL_MODEL_COST_MAP=True") // it asks the network for prices otherwise
	if out, err := cmd.CombinedOutput(); err != nil {
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
	folder := installed(t)
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
	run(t, pythonOf(folder), "check.py", h.URL+"/v1", token)
}
