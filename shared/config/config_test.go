package config

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/fault"
)

func ptr[T any](v T) *T { return &v }

// testdata/infer.toml is the example of the product's specification.
func TestParseInferReadsDocumentedExample(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("testdata/infer.toml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseInfer("infer.toml", src)
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultInfer()
	want.Model = Model{URI: "Qwen/Qwen2.5-0.5B-Instruct", Tokenizer: "..."}
	want.Sampling = Sampling{Temperature: ptr(0.7), TopP: ptr(0.9), TopK: ptr(-1), MaxTokens: ptr(64),
		Seed: ptr(int64(42)), Stop: []string{}}
	want.Input.Glob = "data/prompts/*.jsonl"
	want.Output.Dir = "data/completions"
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	run := DefaultRun()
	run.Model, run.Sampling = want.Model, want.Sampling
	if d := cmp.Diff(run, got.Run()); d != "" {
		t.Errorf("Run() (-want +got)\n%s", d)
	}
	if err := got.Run().Check(); err != nil {
		t.Errorf("Run().Check() = %v", err)
	}
	if got, want := got.StateDir(), filepath.Join("data/completions", ".rollout"); got != want {
		t.Errorf("StateDir() = %q, want %q", got, want)
	}
	got.Storage.Path = "/var/state"
	if got.StateDir() != "/var/state" {
		t.Errorf("StateDir() = %q, want storage.path", got.StateDir())
	}
}

func TestExampleConfigsAreValid(t *testing.T) {
	t.Parallel()
	read := func(name string) []byte {
		b, err := os.ReadFile("../../examples/" + name)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	run, err := ParseRun("examples/prompts.toml", read("prompts.toml"))
	if err != nil || run.Shard.Items != 16 || *run.Sampling.MaxTokens != 64 {
		t.Errorf("prompts.toml: %+v, %v", run, err)
	}
	if r, err := ParseRun("examples/agents.toml", read("agents.toml")); err != nil || len(r.Variants) != 2 ||
		!r.Variants[1].IsAgent() {
		t.Errorf("agents.toml: %+v, %v", r.Variants, err)
	}
	if d, err := ParseDeployment("examples/aws.toml", read("aws.toml")); err != nil ||
		d.Cloud.Provider != ProviderAWS ||
		len(d.Pools) != 1 {
		t.Errorf("aws.toml: %+v, %v", d, err)
	}
	if d, err := ParseDeployment("examples/gcp.toml", read("gcp.toml")); err != nil ||
		d.Cloud.Provider != ProviderGCP || len(d.Pools) != 1 {
		t.Errorf("gcp.toml: %+v, %v", d, err)
	}
	for name, kind := range map[string]string{"sft-tiny.toml": AlgorithmSFT, "rm-tiny.toml": AlgorithmRM} {
		if train, err := ParseTrain("examples/"+name, read(name)); err != nil || train.Algorithm.Kind != kind {
			t.Errorf("%s: %+v, %v", name, train, err)
		}
	}
	batch, err := ParseInfer("examples/batch.toml", read("batch.toml"))
	if err != nil || batch.Engine.URL != EngineTiny || batch.Model.URI != ModelTiny ||
		batch.Output.Dir != "out/batch" {
		t.Errorf("batch.toml: %+v, %v", batch, err)
	}
}

func TestDefaultsAreValidAndAsDocumented(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"run": DefaultRun().Check(), "deployment": DefaultDeployment().Check()} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	h, w, r := DefaultHealth(), DefaultWorker(), DefaultRun()
	for _, c := range []struct {
		name      string
		got, want time.Duration
	}{
		{"heartbeat_interval", h.Interval.Std(), 500 * time.Millisecond},
		{"self_fence_timeout", h.SelfFence.Std(), 4 * time.Second},
		{"failure_timeout", h.FailureTimeout.Std(), 5 * time.Second},
		{"skew_budget", h.SkewBudget.Std(), 250 * time.Millisecond},
		{"checkpoint", w.CheckpointInterval.Std(), time.Minute},
		{"progress_timeout", w.ProgressTimeout.Std(), 2 * time.Minute},
		{"drain_budget", w.DrainBudget.Std(), 15 * time.Second},
		{"grace", r.Limits.Grace.Std(), 10 * time.Second},
	} {
		if c.got != c.want {
			t.Errorf("%s = %v, want %v", c.name, c.got, c.want)
		}
	}
	if w.InFlight != 0 || w.MinInFlight != 4 || w.MaxInFlight != 512 || r.Limits.Failures != 3 ||
		r.Shard.Items != 0 ||
		r.Kind != "batch" {
		t.Errorf("defaults: %+v %+v", w, r)
	}
}

func TestParseRunReadsEveryField(t *testing.T) {
	t.Parallel()
	src := `
schema_version = 1
kind = "batch"
name = "nightly"
model = { uri = "m", revision = "r1" }
[sampling]
temperature = 1
min_p = 0.1
repetition_penalty = 1.1
presence_penalty = -2.0
frequency_penalty = 2
stop = ["a", "b"]
n = 2
logprobs = 0
[input]
dialect = "openai"
max_unpacked = 10
[shard]
items = 1
[limits]
deadline = "1h30m"
grace = "0s"
tokens = 5
dollars = 12.5
failures = 1
fail_fast = true
failed_shards_in_a_row = 3
`
	got, err := ParseRun("x.toml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	want := Run{SchemaVersion: 1, Kind: "batch", Name: "nightly", Model: Model{URI: "m", Revision: "r1"},
		Sampling: Sampling{
			Temperature:       ptr(1.0),
			MinP:              ptr(0.1),
			RepetitionPenalty: ptr(1.1),
			PresencePenalty:   ptr(-2.0),
			FrequencyPenalty:  ptr(2.0),
			Stop:              []string{"a", "b"},
			N:                 ptr(2),
			Logprobs:          ptr(0),
		},
		Input: Input{Dialect: "openai", MaxUnpacked: 10}, Shard: Shard{Items: 1},
		Limits: Limits{Deadline: Duration(90 * time.Minute), Tokens: 5, Dollars: 12.5, Failures: 1, FailFast: true,
			FailedShardsInARow: 3}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestParseDeploymentKeepsDefaultsOfMissingKeys(t *testing.T) {
	t.Parallel()
	src := `
schema_version = 1
secrets = ["hf-token"]
[engine]
url = "http://127.0.0.1:8000/v1"
secret = "hf-token"
[[pool]]
name = "small"
model = "m1"
[[pool]]
name = "large"
model = "m2"
[defaults.sampling]
max_tokens = 5
`
	got, err := ParseDeployment("rollout.toml", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultDeployment()
	want.Secrets = []string{"hf-token"}
	want.Engine = Engine{URL: "http://127.0.0.1:8000/v1", Secret: "hf-token"}
	want.Pools = []Pool{{Name: "small", Model: "m1"}, {Name: "large", Model: "m2"}}
	want.Defaults.Sampling.MaxTokens = ptr(5)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestCheckReportsProblemsOfChangedConfigs(t *testing.T) {
	t.Parallel()
	r := DefaultRun()
	r.Sampling.Temperature = ptr(math.Inf(1))
	d := DefaultDeployment()
	d.Health.SelfFence = d.Health.FailureTimeout
	f := DefaultInfer()
	f.Model.URI, f.Input.Glob, f.Output.Dir = "m", "*.jsonl", "out"
	f.Workers.Count = 0
	for _, c := range []struct {
		err  error
		want string
	}{
		{r.Check(), "sampling.temperature: must be at least 0 and at most 2, is +Inf"},
		{d.Check(),
			"health.self_fence_timeout: must be shorter than failure_timeout (5s), is 5s: a worker must stop before " +
				"another one takes over its shards"},
		{f.Check(), "workers.count: must be between 1 and 1024, is 0"},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("got  %v\nwant %s", c.err, c.want)
		}
		if !fault.Is(c.err, fault.Invalid) {
			t.Errorf("%v has kind %v, want invalid", c.err, fault.KindOf(c.err))
		}
		var ps Problems
		if !errors.As(c.err, &ps) || len(ps) != 1 {
			t.Errorf("%v holds %v, want one problem", c.err, ps)
		}
	}
}

func TestParseReportsAllProblemsAtOnce(t *testing.T) {
	t.Parallel()
	for name, parse := range map[string]func(string, []byte) error{
		"run":        func(f string, b []byte) error { _, err := ParseRun(f, b); return err },
		"deployment": func(f string, b []byte) error { _, err := ParseDeployment(f, b); return err },
		"cloud":      func(f string, b []byte) error { _, err := ParseDeployment(f, b); return err },
		"infer":      func(f string, b []byte) error { _, err := ParseInfer(f, b); return err },
		"train":      func(f string, b []byte) error { _, err := ParseTrain(f, b); return err },
	} {
		src, err := os.ReadFile("testdata/bad_" + name + ".toml")
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile("testdata/bad_" + name + ".txt")
		if err != nil {
			t.Fatal(err)
		}
		got := parse("bad_"+name+".toml", src)
		if got == nil {
			t.Fatalf("%s: accepted", name)
		}
		if d := cmp.Diff(strings.TrimSpace(string(want)), got.Error()); d != "" {
			t.Errorf("%s (-want +got)\n%s\n%s", name, d, got)
		}
	}
}
