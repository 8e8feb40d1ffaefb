package config

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/core/gpus"
)

const (
	awsHead = "schema_version = 1\n[cloud]\nprovider = 'aws'\nregion = 'us-east-1'\ns3.bucket = 'acme'\n"
	aPool   = "[[pool]]\nname = 'p'\nmodel = 'org/model'\n"

	trainingPool = "[[pool]]\nname = 'gym'\nmodel = 'rollout/tiny'\nexecutor = 'train'\n"
)

func TestPoolDescribesItsMachinesAndItsServer(t *testing.T) {
	t.Parallel()
	d, err := ParseDeployment("d.toml", []byte(awsHead+aPool+`instance_types = ["g6e.12xlarge", "g6e.24xlarge"]
server = "sglang"
engine_args = ["--context-length", "32768", "--json-model-override-args", "{\"a\": \"$(id) ''\"}"]
engine_env = { NCCL_DEBUG = "WARN" }
tokenizer = "org/tokens"
tensor_parallel = 4
disk_gb = 300
disk_throughput = 750
boot_deadline = "40m"
max_price = 4.5
on_demand_base = 1
on_demand_share = 0.25
ami = "/acme/gpu/ami-id"
tags = { team = "ml research", "cost:center" = "7" }
[[pool]]
name = "q"
model = "s3://acme-models/llama/8b/"
`))
	if err != nil {
		t.Fatal(err)
	}
	want := PoolMachines{
		InstanceTypes: []string{"g6e.12xlarge", "g6e.24xlarge"}, Server: "sglang",
		EngineImage: "lmsysorg/sglang:v0.5.11-cu129",
		EngineArgs:  []string{"--context-length", "32768", "--json-model-override-args", `{"a": "$(id) ''"}`},
		EngineEnv:   map[string]string{"NCCL_DEBUG": "WARN"}, Tokenizer: "org/tokens", TensorParallel: 4, DiskGB: 300,
		DiskThroughput: 750, BootDeadline: Duration(40 * time.Minute), MaxPrice: 4.5, OnDemandBase: 1, OnDemandShare: 0.25,
		AMI: "/acme/gpu/ami-id", Tags: map[string]string{"team": "ml research", "cost:center": "7"},
	}
	if diff := cmp.Diff(want, d.MachinesOf(d.Pool("p"))); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	fallback := PoolMachines{InstanceTypes: DefaultFleet().InstanceTypes, Server: "vllm",
		EngineImage: DefaultFleet().EngineImage, TensorParallel: 1, DiskGB: 150, BootDeadline: Duration(20 * time.Minute)}
	if diff := cmp.Diff(fallback, d.MachinesOf(d.Pool("q"))); diff != "" {
		t.Errorf("a pool without keys (-want +got)\n%s", diff)
	}
	if bucket, folder := d.Pool("q").ModelBucket(); bucket != "acme-models" || folder != "llama/8b" ||
		d.Pool("q").ModelSource() != ModelOfBucket || d.Pool("p").ModelSource() != ModelOfHub {
		t.Errorf("the model is in %s, %s", bucket, folder)
	}
	if got := len(d.GroupTypes()); got != 2+len(DefaultFleet().InstanceTypes) {
		t.Errorf("the pools have %d types", got)
	}
}

func TestTrainingPoolHasMachinesWithoutGPUs(t *testing.T) {
	t.Parallel()
	for provider, head := range map[string]string{ProviderAWS: awsHead, ProviderGCP: gcpHead} {
		d, err := ParseDeployment("d.toml", []byte(head+aPool+trainingPool))
		if err != nil {
			t.Fatal(err)
		}
		of, _ := providerOf(provider)
		want := PoolMachines{InstanceTypes: of.trainingTypes, DiskGB: 30, BootDeadline: Duration(20 * time.Minute)}
		if diff := cmp.Diff(want, d.MachinesOf(d.Pool("gym"))); diff != "" {
			t.Errorf("%s: a training pool without keys (-want +got)\n%s", provider, diff)
		}
		if p, q := d.ShardsPerMachine("p"), d.ShardsPerMachine("gym"); p != 4 || q != 1 {
			t.Errorf("%s: a machine is for %d open shards, and for %d trainings, want 4 and 1", provider, p, q)
		}
		for _, name := range of.trainingTypes {
			if _, ok := gpus.Of(name); ok || of.armType.MatchString(name) || !of.instanceType.MatchString(name) {
				t.Errorf("%s: the default type %s can't train", provider, name)
			}
		}
		for _, name := range d.Cloud.Fleet.InstanceTypes {
			if of.armType.MatchString(name) {
				t.Errorf("%s: the type %s of the fleet counts as one of Arm", provider, name)
			}
		}
	}
	d, err := ParseDeployment("d.toml", []byte(awsHead+trainingPool+`instance_types = ["m7i-flex.large", "hpc6id.32xlarge"]
disk_gb = 60
provisioning = "standard"
ami = "ami-0123456789abcdef0"
tags = { team = "ml" }
`))
	if err != nil {
		t.Fatal(err)
	}
	want := PoolMachines{InstanceTypes: []string{"m7i-flex.large", "hpc6id.32xlarge"}, DiskGB: 60, OnDemandShare: 1,
		AMI: "ami-0123456789abcdef0", Tags: map[string]string{"team": "ml"}, BootDeadline: Duration(20 * time.Minute)}
	if diff := cmp.Diff(want, d.MachinesOf(d.Pool("gym"))); diff != "" {
		t.Errorf("a training pool with keys (-want +got)\n%s", diff)
	}
}

func TestFleetsImageServesVLLMAlone(t *testing.T) {
	t.Parallel()
	head := strings.Replace(awsHead, "s3.bucket", "fleet.engine_image = 'acme/vllm:1'\ns3.bucket", 1)
	for server, want := range map[string]string{
		"vllm": "acme/vllm:1", "llama.cpp": "ghcr.io/ggml-org/llama.cpp:server-cuda",
	} {
		d, err := ParseDeployment("d.toml", []byte(head+aPool+"server = '"+server+"'\n"))
		if got := d.MachinesOf(d.Pool("p")).EngineImage; err != nil || got != want {
			t.Errorf("%s runs in %s, %v, want %s", server, got, err, want)
		}
	}
}

func TestPoolsThatCannotWorkAreRefused(t *testing.T) {
	t.Parallel()
	model := func(m string) string { return strings.Replace(aPool, "org/model", m, 1) }
	for name, c := range map[string]struct{ src, want string }{
		"no cloud": {"schema_version = 1\n" + aPool + "server = 'vllm'",
			"pool[0].server: an installation outside a cloud starts no machines: remove it"},
		"a server of a training": {awsHead + trainingPool + "engine_image = 'acme/vllm:1'",
			"pool[0].engine_image: a training asks no server: remove it"},
		"GPUs of a training": {awsHead + trainingPool + "instance_types = ['c7i.large', 'g6.xlarge']",
			`pool[0].instance_types[1]: "g6.xlarge" has GPUs, which a training does not use: name types without, such as ` +
				`"c7i.2xlarge"`},
		"processors of Amazon's own": {awsHead + trainingPool + "instance_types = ['c7gd.large']",
			`pool[0].instance_types[0]: "c7gd.large" has processors of Arm, and the worker program is for x86`},
		"processors of Arm on Google Cloud": {gcpHead + trainingPool + "instance_types = ['t2a-standard-4']",
			`pool[0].instance_types[0]: "t2a-standard-4" has processors of Arm, and the worker program is for x86`},
		"a training as a task": {gcpHead + trainingPool + "machines = 'cloud-run'",
			"pool[0].machines: a training outlasts a task of Cloud Run: remove it"},
		"a training that waits for GPUs": {gcpHead + trainingPool + "provisioning = 'flex-start'",
			`pool[0].provisioning: "flex-start" is for machines with GPUs: use "spot" or "standard"`},
		"a small disk of a training": {awsHead + trainingPool + "disk_gb = 5",
			"pool[0].disk_gb: must be between 10 and 16384, is 5"},
		"machines of a training on a laptop": {"schema_version = 1\n" + trainingPool + "disk_gb = 50",
			"pool[0].disk_gb: an installation outside a cloud starts no machines: remove it"},
		"an unknown server": {awsHead + aPool + "server = 'tgi'",
			`pool[0].server: "tgi" is not a valid server: use vllm or sglang or llama.cpp`},
		"an argument of rollout's": {awsHead + aPool + "engine_args = ['--port', '1']",
			`pool[0].engine_args[0]: "--port" is set by rollout: remove it`},
		"an argument of two lines": {awsHead + aPool + `engine_args = ["a\nExecStartPre=/bin/sh -c id"]`,
			"pool[0].engine_args[0]: has control characters: remove them"},
		"a variable with a line": {awsHead + aPool + `engine_env = { A = "x\nB=y" }`,
			"pool[0].engine_env.A: has control characters: remove them"},
		"a name that is no variable": {awsHead + aPool + "engine_env = { 'A;id' = 'x' }",
			`"A;id" can't be used here: use letters, digits and _`},
		"a token in the config": {awsHead + aPool + "engine_env = { HF_TOKEN = 'hf_x' }",
			"pool[0].engine_env.HF_TOKEN: a token does not belong in a config: create the secret hf-token"},
		"an image of a shell": {awsHead + aPool + "engine_image = 'x; id'",
			`pool[0].engine_image: "x; id" can't be used here`},
		"too many arguments": {awsHead + aPool + "engine_args = [" + strings.Repeat("'a',", 65) + "]",
			"pool[0].engine_args: must list at most 64 arguments, lists 65"},
		"another cloud's types": {awsHead + aPool + "instance_types = ['g2-standard-8']",
			`pool[0].instance_types[0]: "g2-standard-8" can't be used here: write one such as "g6.xlarge"`},
		"another cloud's image": {gcpHead + aPool + "ami = 'ami-0123456789abcdef0'",
			`pool[0].ami: "ami-0123456789abcdef0" can't be used here`},
		"what Google Cloud lacks": {gcpHead + aPool + "max_price = 1\ndisk_throughput = 500\non_demand_base = 1",
			`pool[0].on_demand_base: the provider "gcp" can't do it: a pool buys all its machines in one way: set provisioning`},
		"labels are strict": {gcpHead + aPool + "tags = { Team = 'ML' }", `pool[0].tags.Team: "Team" can't be used here`},
		"a tag of rollout's": {awsHead + aPool + "tags = { rollout = 'x' }",
			"pool[0].tags.rollout: rollout or the provider sets this tag"},
		"machines of a task": {gcpHead + aPool + "machines = 'cloud-run'\ndisk_gb = 200\ntensor_parallel = 2",
			"pool[0].tensor_parallel: a task of Cloud Run has one GPU: remove it"},
		"two ways to buy": {awsHead + aPool + "provisioning = 'standard'\nmax_price = 1",
			`pool[0].provisioning: "standard" already buys all machines at the list price`},
		"more than all": {awsHead + aPool + "on_demand_share = 1.5",
			"pool[0].on_demand_share: must be between 0 and 1, is 1.5"},
		"a small disk": {awsHead + aPool + "disk_gb = 8", "pool[0].disk_gb: must be between 100 and 16384, is 8"},
		"a short boot": {awsHead + aPool + "boot_deadline = '5s'",
			"pool[0].boot_deadline: must be between 1m0s and 3h0m0s, is 5s"},
		"a boot longer than a task": {gcpHead + aPool + "machines = 'cloud-run'\nboot_deadline = '41m'",
			"pool[0].boot_deadline: must be between 1m0s and 40m0s, is 41m0s: a task of Cloud Run lives 50 minutes"},
		"another cloud's bucket": {awsHead + model("gs://acme/x"),
			`pool[0].model: "gs://acme/x" is not an address of the provider's buckets: write s3://BUCKET/FOLDER`},
		"a bucket without a folder": {awsHead + model("s3://acme"),
			`"s3://acme" can't be used here: write s3://BUCKET/FOLDER`},
		"a folder outside":       {awsHead + model("s3://acme/../x"), `"s3://acme/../x" can't be used here`},
		"a folder for a shell":   {awsHead + model("s3://acme/$(id)"), `"s3://acme/$(id)" can't be used here`},
		"a model like an option": {awsHead + model("--help"), `"--help" begins like an option of the server`},
		"a folder of no image": {awsHead + model("/models/x"),
			`pool[0].model: "/models/x" is a folder of the machines, and the provider's image has none`},
		"a folder that is an option of Docker": {awsHead + model("/models:/x") + "ami = 'ami-0123456789abcdef0'",
			`pool[0].model: "/models:/x" can't be used here`},
		"a folder above the image's": {awsHead + model("/..") + "ami = 'ami-0123456789abcdef0'",
			`pool[0].model: "/.." can't be used here: write a folder of letters`},
		"a bucket for tasks": {gcpHead + model("gs://acme/x") + "machines = 'cloud-run'",
			"pool[0].model: tasks of Cloud Run fetch models from the hub"},
		"a folder for llama.cpp": {awsHead + model("s3://acme/x") + "server = 'llama.cpp'",
			"pool[0].model: llama.cpp serves one file: write the address of a .gguf file, " +
				"or the one that `rollout model cache` printed"},
		"a tokenizer for llama.cpp": {awsHead + aPool + "server = 'llama.cpp'\ntokenizer = 'org/t'",
			"pool[0].tokenizer: llama.cpp has its tokenizer in the model's file: remove it"},
	} {
		_, err := ParseDeployment("d.toml", []byte(c.src))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}
