package openaiclient

import (
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"rollout/gpuworker/engine/tiny"
	"rollout/localstack/tinytest"
	"rollout/scripts/rollout/serve"
	"rollout/shared/clock"
	"rollout/shared/secret"
)

func TestOpenAIsClientWorksWithTheServer(t *testing.T) {
	t.Parallel()
	python := filepath.Join("..", "..", "..", "out", "openaiclient", "bin", "python")
	if _, err := os.Stat(python); err != nil {
		const missing = "OpenAI's client is not installed: run `make openai-client`"
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
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
