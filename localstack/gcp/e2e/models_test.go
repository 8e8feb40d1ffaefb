package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"rollout/localstack/scenarios"
	"rollout/localstack/subprocess"
	"rollout/shared/hub/hubtest"
)

// The first machine of a pool stores the model that its server fetched from the hub, and the
// second reads it from the bucket. A user stores a model that only the bucket has.
func TestMachinesReadModelsFromTheBucket(t *testing.T) {
	in := open(t, scenarios.Settings{Machines: 1, FromNone: true})
	weights := make([]byte, 9<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(weights) // it never fails
	hub := hubtest.New(t, map[string][]byte{"model.safetensors": weights, "config.json": []byte("{}")})
	run := func(root, config, command string) string {
		t.Helper()
		var out bytes.Buffer
		cmd := exec.CommandContext(t.Context(), gpuworker, "machine", command, "--config", config, "--pool", "default")
		cmd.Env = append(in.environment(), "GCE_METADATA_HOST="+in.metadata, "ROLLOUT_ROOT="+root, "HF_ENDPOINT="+hub.URL)
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := subprocess.Run(cmd); err != nil {
			t.Fatalf("machine %s: %v\n%s", command, err, &out)
		}
		return out.String()
	}
	config := filepath.Join(in.dir, "rollout.toml")
	first, second, third := t.TempDir(), t.TempDir(), t.TempDir()
	if said := run(first, config, "fetch-model"); !strings.Contains(said, "the bucket has no copy of fake") {
		t.Errorf("the first machine says %q", said)
	}
	const model = "var/lib/rollout/models/hub/models--fake"
	write := func(name string, b []byte) {
		at := filepath.Join(first, model, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, b, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range hub.Files { // as the server does
		write("snapshots/"+hubtest.Commit+"/"+name, b)
	}
	write("refs/main", []byte(hubtest.Commit))
	if said := run(first, config, "store-model"); !strings.Contains(said, "fake is stored in the bucket: 9.0 MiB") {
		t.Errorf("the first machine says %q", said)
	}
	if said := run(second, config, "fetch-model"); !strings.Contains(said, "fake came from the bucket: 9.0 MiB") {
		t.Errorf("the second machine says %q", said)
	}
	for name, want := range hub.Files {
		b, err := os.ReadFile(filepath.Join(second, model, "snapshots", hubtest.Commit, name))
		if err != nil || !bytes.Equal(b, want) {
			t.Errorf("%s has %d bytes, %v", name, len(b), err)
		}
	}

	folder := t.TempDir()
	scenarios.Write(t, folder, "config.json", `{"layers":3}`)
	out := in.Do("model", "cache", folder, "--name", "mine", "--json")
	var stored struct{ Model string }
	if err := json.Unmarshal([]byte(out), &stored); err != nil || !strings.HasPrefix(stored.Model, "gs://") {
		t.Fatalf("a user caches a folder: %v\n%s", err, out)
	}
	if out := in.Do("model", "list"); !strings.Contains(out, hubtest.Commit) || !strings.Contains(out, "mine") {
		t.Errorf("the models are\n%s", out)
	}
	own := scenarios.Write(t, t.TempDir(), "rollout.toml", strings.Replace(in.toml, `model = "fake"`,
		`model = "`+stored.Model+`"`, 1))
	run(third, own, "fetch-model")
	if b, err := os.ReadFile(filepath.Join(third, "var/lib/rollout/model/config.json")); err != nil ||
		string(b) != `{"layers":3}` {
		t.Errorf("the machine's own model is %q, %v", b, err)
	}
}
