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

	"rollout/localstack/fakellm"
	"rollout/localstack/scenarios"
	"rollout/localstack/subprocess"
	"rollout/shared/hub/hubtest"
)

// modelMachine is a machine of the pool with a file system of its own, and the rights of
// the group's role.
type modelMachine struct {
	*installation
	root, config string
	hub          *hubtest.Hub
}

func (m modelMachine) run(command string) string {
	m.t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(m.t.Context(), programs.Path("gpuworker"), "machine", command, "--config", m.config,
		"--pool", scenarios.Pool)
	cmd.Env = append(m.Deployed.Environment("worker"), "AWS_SESSION_TOKEN="+m.group, "ROLLOUT_ROOT="+m.root,
		"HF_ENDPOINT="+m.hub.URL, "PATH="+os.Getenv("PATH"), "HOME=/nonexistent")
	cmd.Stderr, cmd.Stdout = &out, &out
	if err := subprocess.Run(cmd); err != nil {
		m.t.Fatalf("machine %s: %v\n%s", command, err, &out)
	}
	return out.String()
}

// The first machine of a pool stores the model that its server fetched from the hub, and the
// second reads it from the bucket, each with the rights of its role. A user stores a model
// that only the bucket has, and a reader sees both.
func TestMachinesReadModelsFromTheBucket(t *testing.T) {
	t.Parallel()
	a := open(t, scenarios.Serve(t, fakellm.Config{}), scenarios.Settings{Machines: 1, FromNone: true}, nil)
	weights := make([]byte, 9<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(weights) // it never fails
	hub := hubtest.New(t, map[string][]byte{"model.safetensors": weights, "config.json": []byte("{}")})
	config := filepath.Join(a.dir, "rollout.toml")
	machine := func(config string) modelMachine { return modelMachine{a, t.TempDir(), config, hub} }

	first := machine(config)
	if said := first.run("fetch-model"); !strings.Contains(said, "the bucket has no copy of fake") {
		t.Errorf("the first machine says %q", said)
	}
	model := "var/lib/rollout/models/hub/models--fake"
	write := func(name string, b []byte) {
		at := filepath.Join(first.root, model, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, b, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range hub.Files { // as the server does
		write("snapshots/"+hubtest.Commit+"/"+name, b)
	}
	write("refs/main", []byte(hubtest.Commit))
	if said := first.run("store-model"); !strings.Contains(said, "fake is stored in the bucket: 9.0 MiB") {
		t.Errorf("the first machine says %q", said)
	}
	second := machine(config)
	if said := second.run("fetch-model"); !strings.Contains(said, "fake came from the bucket: 9.0 MiB") {
		t.Errorf("the second machine says %q", said)
	}
	for name, want := range hub.Files {
		b, err := os.ReadFile(filepath.Join(second.root, model, "snapshots", hubtest.Commit, name))
		if err != nil || !bytes.Equal(b, want) {
			t.Errorf("%s has %d bytes, %v", name, len(b), err)
		}
	}

	as := func(policy string, args ...string) (string, error) {
		environment := append(a.Deployed.Environment(a.caller(policy)), "HF_ENDPOINT="+hub.URL)
		return scenarios.Rollout(t, programs.Path("rollout"), environment, append(args, "--cloud", "aws", "--dir", a.dir)...)
	}
	folder := t.TempDir()
	scenarios.Write(t, folder, "config.json", `{"layers":3}`)
	out, err := as("user", "model", "cache", folder, "--name", "mine", "--json")
	var stored struct{ Model string }
	if err != nil || json.Unmarshal([]byte(out), &stored) != nil || !strings.HasPrefix(stored.Model, "s3://") {
		t.Fatalf("a user caches a folder: %v\n%s", err, out)
	}
	if out, err := as("user", "model", "cache", "fake"); err != nil || !strings.Contains(out, "is in the bucket already") {
		t.Errorf("a user caches what is there: %v\n%s", err, out)
	}
	if out, err := as("reader", "model", "list"); err != nil || !strings.Contains(out, hubtest.Commit) ||
		!strings.Contains(out, "mine") {
		t.Errorf("a reader lists: %v\n%s", err, out)
	}
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	own := scenarios.Write(t, t.TempDir(), "rollout.toml",
		strings.Replace(string(text), `model = "fake"`, `model = "`+stored.Model+`"`, 1))
	third := machine(own)
	third.run("fetch-model")
	if b, err := os.ReadFile(filepath.Join(third.root, "var/lib/rollout/model/config.json")); err != nil ||
		string(b) != `{"layers":3}` {
		t.Errorf("the machine's own model is %q, %v", b, err)
	}
	if denied := a.DeniedRequests(); len(denied) > 0 {
		t.Errorf("denied: %q", denied)
	}
	a.mayBeDenied = true
	if out, err := as("reader", "model", "cache", folder, "--name", "other"); err == nil {
		t.Errorf("a reader stores a model:\n%s", out)
	}
}
