package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// tools is the folder of OpenTofu and the provider of schemas, from the environment. make
// test-infra sets it.
var tools = os.Getenv("ROLLOUT_INFRA_GCP")

// lacks skips a test without a tool that make test-infra installs. In CI the test fails.
func lacks(t *testing.T, tool string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf("there is no %s: run make test-infra", tool)
	}
	t.Skipf("SKIPPED: there is no %s: run make test-infra", tool)
}

// answers is a file with the answers of Google Cloud to the data sources of a plan: the
// region has four zones, one of them without GPUs, and one without the larger machines.
const answers = "testdata/answers.json"

// testImage is the image of the functions.
const testImage = "us-central1-docker.pkg.dev/acme-ml/rollout/functions@sha256:" +
	"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// testConfig is a config with every kind of pool and secret.
const testConfig = `schema_version = 1
[cloud]
provider = "gcp"
project = "acme-ml"
region = "us-central1"
gcs.bucket = "acme-rollout"
gcs.prefix = "team-a/"
secrets.allowlist = ["hf-token", "api-token"]
fleet.instance_types = ["g2-standard-8", "g2-standard-12", "a2-highgpu-1g"]
[[pool]]
name = "small"
model = "org/small"
revision = "it's"
[[pool]]
name = "large"
model = "org/large"
machines = "cloud-run"
engine_env = { NCCL_DEBUG = "$(touch /tmp/x)" }
` + wholePool

// edit replaces a text of a file by another.
type edit struct{ file, from, to string }

// workspace is a folder with the configuration of infra/gcp.
type workspace struct {
	dir string
	env []string
}

// newWorkspace copies the configuration, makes the edits, and writes the settings of
// testConfig with more options.
func newWorkspace(t *testing.T, options map[string]any, edits ...edit) workspace {
	t.Helper()
	if tools == "" {
		lacks(t, "OpenTofu")
	}
	w := workspace{dir: t.TempDir()}
	files, err := filepath.Glob("*.tf")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(files, "bootstrap.sh", "cloud-run.sh") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range edits {
			if e.file != name {
				continue
			}
			if e.from == "" {
				text = append(text, e.to...)
				continue
			}
			if !bytes.Contains(text, []byte(e.from)) {
				t.Fatalf("%s does not contain %q", name, e.from)
			}
			text = bytes.ReplaceAll(text, []byte(e.from), []byte(e.to))
		}
		w.write(t, name, text)
	}
	s, _, err := readSettings("rollout.toml", []byte(testConfig))
	if err != nil {
		t.Fatal(err)
	}
	variables := map[string]any{"settings": s, "image": testImage, "worker": "gpuworker"}
	for name, v := range options {
		variables[name] = v
	}
	text, err := json.Marshal(variables)
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, "rollout.auto.tfvars.json", text)
	w.write(t, "gpuworker", []byte("a program"))
	found, err := os.ReadFile(answers)
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, "answers.json", found)
	w.write(t, "cli.config", cliConfig())
	lock, err := os.ReadFile(filepath.Join(initialized(t), ".terraform.lock.hcl"))
	if err != nil {
		t.Fatal(err)
	}
	w.write(t, ".terraform.lock.hcl", lock)
	if err := os.Symlink(filepath.Join(initialized(t), ".terraform"), filepath.Join(w.dir, ".terraform")); err != nil {
		t.Fatal(err)
	}
	w.env = environment(w.dir)
	return w
}

// environment returns the variables of OpenTofu in a workspace.
func environment(dir string) []string {
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + os.TempDir(),
		"TF_CLI_CONFIG_FILE=" + filepath.Join(dir, "cli.config"), "SCHEMAS_DATA=" + filepath.Join(dir, "answers.json"),
		"TF_IN_AUTOMATION=1", "CHECKPOINT_DISABLE=1"}
}

// initialization is the folder in which OpenTofu has found the provider, once for all tests.
var initialization struct {
	sync.Once
	dir string
}

// initialized returns a folder in which `tofu init` has run. TestMain removes it.
func initialized(t *testing.T) string {
	t.Helper()
	initialization.Do(func() {
		dir, err := os.MkdirTemp("", "rollout-infra-gcp-")
		if err != nil {
			t.Fatal(err)
		}
		w := workspace{dir, environment(dir)}
		w.write(t, "cli.config", cliConfig())
		versions, err := os.ReadFile("versions.tf")
		if err != nil {
			t.Fatal(err)
		}
		terraform, _, _ := bytes.Cut(versions, []byte("provider \"google\""))
		w.write(t, "versions.tf", terraform)
		if out, ok := w.tofu(t, "init", "-input=false", "-no-color"); !ok {
			t.Fatal(out)
		}
		initialization.dir = dir
	})
	if initialization.dir == "" {
		t.Fatal("OpenTofu could not be initialized: see the first test that failed")
	}
	return initialization.dir
}

// cliConfig returns the configuration of OpenTofu, by which it finds providers in the tools
// alone.
func cliConfig() []byte {
	return []byte(`provider_installation {
  filesystem_mirror {
    path = "` + filepath.Join(tools, "mirror") + `"
  }
}
`)
}

func TestMain(m *testing.M) {
	if actAsWorker() {
		return
	}
	code := m.Run()
	if initialization.dir != "" {
		_ = os.RemoveAll(initialization.dir) // of the system's temporary files
	}
	os.Exit(code)
}

func (w workspace) write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, name), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// tofu runs OpenTofu. It returns its output, and whether it succeeded.
func (w workspace) tofu(t *testing.T, args ...string) (string, bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(tools, "tofu"), args...)
	cmd.Dir, cmd.Env = w.dir, w.env
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// problem plans the deployment. It returns what OpenTofu says against it, or "". The words of
// a message stand in one line.
func (w workspace) problem(t *testing.T) string {
	t.Helper()
	w.env = append(w.env, "SCHEMAS_KNOWN=true") // so that the plan says what refers to what
	out, ok := w.tofu(t, "plan", "-input=false", "-no-color", "-out=plan")
	if ok {
		return ""
	}
	return inOneLine(out)
}

// inOneLine returns the error in OpenTofu's output without its frame.
func inOneLine(out string) string {
	out = out[max(0, strings.Index(out, "Error: ")):]
	return strings.Join(strings.Fields(strings.ReplaceAll(out, "│", " ")), " ")
}

// planned plans the deployment, and returns its resources.
func (w workspace) planned(t *testing.T) deployment {
	t.Helper()
	if said := w.problem(t); said != "" {
		t.Fatal(said)
	}
	return w.plan(t)
}

// plan returns the resources of the plan.
func (w workspace) plan(t *testing.T) (managed deployment) {
	t.Helper()
	out, ok := w.tofu(t, "show", "-json", "plan")
	if !ok {
		t.Fatal(out)
	}
	var in struct {
		Planned struct {
			Root struct {
				Resources []resource `json:"resources"`
			} `json:"root_module"`
		} `json:"planned_values"`
	}
	if err := json.Unmarshal([]byte(out), &in); err != nil {
		t.Fatalf("%v in %.400s", err, out)
	}
	for _, r := range in.Planned.Root.Resources {
		if r.Mode == "managed" {
			managed = append(managed, r)
		}
	}
	return managed
}

// replaceInState replaces a text of the state, as if somebody had changed a resource.
func (w workspace) replaceInState(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(w.dir, "terraform.tfstate"))
	if err != nil || !bytes.Contains(text, []byte(from)) {
		t.Fatalf("the state has no %s: %v", from, err)
	}
	w.write(t, "terraform.tfstate", bytes.ReplaceAll(text, []byte(from), []byte(to)))
}

// deployment are the resources of an installation.
type deployment []resource

// resource is a resource with all its arguments.
type resource struct {
	Address string `json:"address"` // Example: google_pubsub_topic.topic["plan"]
	Mode    string `json:"mode"`    // "managed", or "data" for a data source
	Type    string `json:"type"`
	Values  object `json:"values"`
}

// object is a block, or the values of a resource.
type object map[string]any

// of returns the resources of the type.
func (d deployment) of(kind string) (out []resource) {
	for _, r := range d {
		if r.Type == kind {
			out = append(out, r)
		}
	}
	return out
}

// text returns the text at a name, or "".
func (o object) text(name string) string {
	s, _ := o[name].(string)
	return s
}

// number returns the number at a name, or -1.
func (o object) number(name string) float64 {
	if n, ok := o[name].(float64); ok {
		return n
	}
	return -1
}

// texts returns the list or set of texts at a name.
func (o object) texts(name string) (out []string) {
	list, _ := o[name].([]any)
	for _, v := range list {
		s, _ := v.(string)
		out = append(out, s)
	}
	return out
}

// blocks returns the blocks at a name.
func (o object) blocks(name string) (out []object) {
	list, _ := o[name].([]any)
	for _, v := range list {
		if m, ok := v.(map[string]any); ok {
			out = append(out, m)
		}
	}
	return out
}

// block returns the first block at the path, or an empty one.
func (o object) block(path ...string) object {
	for _, name := range path {
		all := o.blocks(name)
		if len(all) == 0 {
			return object{}
		}
		o = all[0]
	}
	return o
}

func TestToolsAreOfThisMachine(t *testing.T) {
	t.Parallel()
	if tools == "" {
		lacks(t, "OpenTofu")
	}
	platform := filepath.Join(tools, "mirror/registry.opentofu.org/hashicorp/google/6.50.0",
		runtime.GOOS+"_"+runtime.GOARCH)
	if _, err := os.Stat(filepath.Join(platform, "schema.json")); err != nil {
		t.Errorf("%v: run make test-infra, which makes it", err)
	}
}
