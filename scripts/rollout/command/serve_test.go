package command_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"rollout/gpuworker/tinylm/weights"
	"rollout/localstack/tinytest"
	"rollout/scripts/rollout/command"
	"rollout/shared/clock"
)

// packedModel writes a small model to a file.
func packedModel(t *testing.T) string {
	t.Helper()
	b, err := weights.Pack("noise", tinytest.Model(t, tinytest.Config()), tinytest.Tokenizer(t), weights.I8)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "noise.safetensors")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The first line of the output is the URL, and the exit code is 0.
func TestServeAnswersUntilItIsStopped(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, printed := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- command.Main(ctx, []string{"serve", "--model", packedModel(t), "--addr", "127.0.0.1:0",
			"--served-model-name", "mine"},
			command.Env{Out: printed, Err: io.Discard, Clock: clock.System{}, Getenv: noEnv})
		_ = printed.Close()
	}()
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(strings.TrimSpace(url)+"/completions", "application/json",
		strings.NewReader(`{"prompt":"In the","max_tokens":3,"ignore_eos":true}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"completion_tokens":3`) ||
		!strings.Contains(string(body), `"model":"mine"`) {
		t.Errorf("%s: %s, %v", resp.Status, body, err)
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestServeRefusesInvalidFlagsAndModels(t *testing.T) {
	t.Parallel()
	nothing := filepath.Join(t.TempDir(), "nothing")
	if err := os.WriteFile(nothing, []byte("no weights"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--engine", "vllm"}, 2, "--engine vllm"},
		{[]string{"--model", nothing}, 3, "nothing: weights"},
		{[]string{"--model", nothing + "-at-all"}, 2, "--model"},
		{[]string{"--model", packedModel(t), "--addr", "0.0.0.0:0"}, 2, "can be reached from other machines"},
		{[]string{"--model", packedModel(t), "--chat", "loud"}, 2, "--chat"},
		{[]string{"--max-num-seqs", "0"}, 2, "at least 1"},
	} {
		var stderr strings.Builder
		code := command.Main(t.Context(), append([]string{"serve"}, c.args...),
			command.Env{Out: io.Discard, Err: &stderr, Clock: clock.System{}, Getenv: noEnv})
		if code != c.code || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%v: %d, %s", c.args, code, stderr.String())
		}
	}
}
