package plugin

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"rollout/gpuworker/isolation"
	"rollout/shared/config"
)

const samples = "../../examples/plugins"

// The samples need no installation: Python's standard library, and Go's compiler.
func TestSamplesScoreAnswers(t *testing.T) {
	t.Parallel()
	brevity := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s", "-buildmode=c-shared", "-o",
		filepath.Join(brevity, "brevity.wasm"), samples+"/brevity")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(samples, "brevity", config.PluginFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(brevity, config.PluginFile), text, 0o644); err != nil {
		t.Fatal(err)
	}
	keywords := at(filepath.Join(samples, "keywords"))
	sandbox, err := isolation.Open(filepath.Join(t.TempDir(), "sandboxes"))
	if err != nil {
		t.Fatal(err)
	}
	if level, _ := sandbox.Probe(t.Context()); level != isolation.Full {
		keywords.Trusted = true
	}
	h := open(t, map[string]config.Plugin{"keywords": keywords, "brevity": at(brevity)},
		Options{Sandbox: func() (*isolation.Sandbox, error) { return sandbox, nil }})
	const items = `{"items":[{"id":"1","answer":"Warm and kind","expected":["warm","cold"]},` +
		`{"id":"2","answer":"","expected":null}]}`
	for name, want := range map[string]string{"keywords": `{"scores": [0.5, null]}`, "brevity": `{"scores":[1,1]}`} {
		for range 2 {
			got, err := h.Call(t.Context(), name, "grade", []byte(items))
			if err != nil || string(got) != want {
				t.Errorf("%s: %s, %v, want %s", name, got, err, want)
			}
		}
		if _, err := h.Call(t.Context(), name, "unknown", nil); err == nil {
			t.Errorf("%s answers an unknown method", name)
		}
	}
}
