package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/poolcheck"
)

const head = "schema_version = 1\n[cloud]\nprovider = 'gcp'\nproject = 'acme-ml'\nregion = 'us-central1'\n" +
	"gcs.bucket = 'acme-rollout'\n"

const onePool = "[[pool]]\nname = 'small'\nmodel = 'org/small'\n"

// wholePool has every key that describes machines on Google Cloud.
const wholePool = `[[pool]]
name = "whole"
model = "gs://acme-models/llama/"
instance_types = ["a3-highgpu-8g", "a3-ultragpu-8g"]
server = "sglang"
engine_args = ["--context-length", "32768", "$(touch /tmp/x)"]
tensor_parallel = 8
disk_gb = 300
boot_deadline = "40m"
ami = "projects/acme-ml/global/images/family/gpu-nvidia-580"
tags = { team = "ml" }
`

func TestSettingsAreThoseOfTheConfig(t *testing.T) {
	t.Parallel()
	got, _, err := readSettings("rollout.toml", []byte(head+"secrets.allowlist = ['hf-token']\n"+onePool+
		"[[pool]]\nname = 'large'\nmodel = 'org/large'\nrevision = 'v1'\nmachines = 'cloud-run'\n"+
		"engine_env = { NCCL_DEBUG = 'WARN' }\n"+wholePool))
	if err != nil {
		t.Fatal(err)
	}
	job, err := config.ParseDeployment("job_config", []byte(got.JobConfig))
	if err != nil || job.Worker.DrainBudget.Std() != 8*time.Second {
		t.Errorf("tasks of jobs drain within %s, %v", job.Worker.DrainBudget.Std(), err)
	}
	whole, err := config.ParseDeployment("config", []byte(got.Config))
	if err != nil || whole.Worker.DrainBudget.Std() != 15*time.Second {
		t.Errorf("machines drain within %s, %v", whole.Worker.DrainBudget.Std(), err)
	}
	got.Config, got.JobConfig = "", ""
	want := settings{
		Project: "acme-ml", Region: "us-central1", Name: "rollout",
		Bucket: "acme-rollout", Database: "rollout", Topics: "rollout-",
		PushAccount: "rollout-push@acme-ml.iam.gserviceaccount.com",
		Secrets:     []string{"hf-token"}, SecretPrefix: "rollout-",
		Pools: map[string]pool{
			"small": {Model: "org/small", Machines: "group", Provisioning: "spot",
				InstanceTypes: []string{"g2-standard-8", "g2-standard-12", "g2-standard-16", "g2-standard-32"},
				EngineImage:   "vllm/vllm-openai:v0.21.0-cu129", EngineEnv: map[string]string{}, DiskGB: 150, BootSeconds: 1200,
				Labels: map[string]string{}},
			"large": {Model: "org/large", Machines: "cloud-run", Provisioning: "spot", InstanceTypes: []string{},
				EngineImage: "vllm/vllm-openai:v0.21.0-cu129", EngineEnv: map[string]string{"NCCL_DEBUG": "WARN"}, DiskGB: 150,
				BootSeconds: 1200, Labels: map[string]string{}},
			"whole": {Model: "gs://acme-models/llama/", Machines: "group", Provisioning: "spot",
				InstanceTypes: []string{"a3-highgpu-8g", "a3-ultragpu-8g"}, EngineImage: "lmsysorg/sglang:v0.5.11-cu129",
				EngineEnv: map[string]string{}, DiskGB: 300, BootSeconds: 2400,
				Image:  "projects/acme-ml/global/images/family/gpu-nvidia-580",
				Labels: map[string]string{"team": "ml"}, ModelBucket: "acme-models", ModelFolder: "llama"},
		},
		MaxMachines: 8,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

// manyPools returns the config of n pools, each of more than 100 bytes.
func manyPools(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "[[pool]]\nname = 'p%d'\nmodel = '%0100d'\n", i, i)
	}
	return b.String()
}

func TestSettingsNameTheProblemsOfAConfig(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, want string }{
		"no cloud": {"schema_version = 1\n", `add [cloud] with provider = "gcp"`},
		"no pool":  {head, "it has no [[pool]]"},
		"a name of one letter, and a long bucket": {
			strings.Replace(head, "acme-rollout", strings.Repeat("b", 55), 1) +
				"name = 'a'\nfirestore.database = 'data'\n" + onePool,
			`cloud.name is "a": use at least 2 characters; cloud.gcs.bucket has 55 characters: use at most 54`},
		"a long config": {head + manyPools(300),
			"a function's environment has room for 30720"},
	} {
		if _, _, err := readSettings("rollout.toml", []byte(c.src)); !fault.Is(err, fault.Invalid) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
}

func TestProgramWritesTheExamplesSettings(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out.json")
	var said bytes.Buffer
	nowhere := poolcheck.Models{Hub: "http://127.0.0.1:1"}
	if err := run([]string{"-config", "../../examples/gcp.toml", "-o", out}, &said, nowhere); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil || !strings.Contains(string(text), `"settings": {`) {
		t.Errorf("wrote %s, %v", text, err)
	}
	if !strings.Contains(said.String(), "note: whether Qwen/Qwen2.5-0.5B-Instruct fits is not known: the hub can't be") {
		t.Errorf("it says %s", &said)
	}
	if err := run([]string{"-config", "none.toml"}, t.Output(), nowhere); !fault.Is(err, fault.NotFound) {
		t.Errorf("a missing config: %v", err)
	}
}
