package config

import (
	"encoding/json"
	"strings"
	"testing"
)

const trainRun = `schema_version = 1
kind = "train"
[algorithm.sft]
base_model = "rollout/tiny"
[algorithm.sft.optimizer]
lr = 0.001
[algorithm.sft.budget]
max_steps = 10
`

func TestParseRunReadsTraining(t *testing.T) {
	t.Parallel()
	r, err := ParseRun("x.toml", []byte(trainRun+"[snapshot]\nevery_steps = 5\n[limits]\ndeadline = \"1h\"\n"))
	if err != nil {
		t.Fatal(err)
	}
	if a := r.Algorithm; a.Kind != AlgorithmSFT || a.SFT.BaseModel.URI != ModelTiny || a.SFT.Budget.MaxSteps != 10 {
		t.Errorf("algorithm %+v", a)
	}
	if s := r.Snapshots(); s.Every != 5 || s.KeepLast != DefaultSnapshots().KeepLast {
		t.Errorf("snapshots %+v", s)
	}
	if r, err := ParseRun("x.toml", []byte(trainRun)); err != nil || r.Snapshots() != DefaultSnapshots() {
		t.Errorf("without [snapshot]: %+v, %v", r.Snapshots(), err)
	}
	text, err := json.Marshal(DefaultRun())
	if err != nil || strings.Contains(string(text), "algorithm") || strings.Contains(string(text), "snapshot") {
		t.Errorf("JSON of a batch has settings of a training: %s, %v", text, err)
	}
}

func TestParseRunRefusesSettingsOfAnotherKind(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want string }{
		{"schema_version = 1\nkind = \"train\"\n", "x.toml: algorithm: missing: add [algorithm]"},
		{trainRun + "[model]\nuri = \"m\"\n",
			"x.toml:9: model: applies only to prompts, and this run is a training: remove it"},
		{trainRun + "[sampling]\ntemperature = 0.5\n", "x.toml:9: sampling: applies only to prompts"},
		{trainRun + "[shard]\nitems = 1\n", "x.toml:9: shard: applies only to prompts"},
		{trainRun + "[dedupe]\nenabled = true\n", "x.toml:9: dedupe: applies only to prompts"},
		{trainRun + "[snapshot]\nkeep_last = 0\n", "x.toml:10: snapshot.keep_last: must be between"},
		{trainRun + "[algorithm.sft.dataset]\npath = \"y.jsonl\"\n",
			"x.toml:10: algorithm.sft.dataset.path: a run's dataset is the .jsonl file beside this one"},
		{strings.Replace(trainRun, "rollout/tiny", "meta-llama/Llama-3.2-1B", 1),
			`x.toml:4: algorithm.sft.base_model.uri: "meta-llama/Llama-3.2-1B" can't be trained here`},
		{strings.Replace(trainRun, "train", "batch", 1),
			`x.toml:3: algorithm: applies only to a training, and this run is a batch: set kind = "train"`},
		{"schema_version = 1\n[snapshot]\n", "x.toml:2: snapshot: applies only to a training"},
	} {
		if _, err := ParseRun("x.toml", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
	defaults := "schema_version = 1\n[defaults]\nschema_version = 1\nkind = \"train\"\n"
	if _, err := ParseDeployment("rollout.toml", []byte(defaults)); err == nil ||
		!strings.Contains(err.Error(), `defaults.kind: "train" can't be the default kind of runs`) {
		t.Errorf("kind train in [defaults]: %v", err)
	}
}

func TestTrainPoolIsDeclaredOrBuiltIn(t *testing.T) {
	t.Parallel()
	const inferPool = "[[pool]]\nname = \"a\"\nmodel = \"m\"\n"
	const trainingPool = "[[pool]]\nname = \"gym\"\nmodel = \"rollout/tiny\"\nexecutor = \"train\"\n"
	d, err := ParseDeployment("rollout.toml", []byte("schema_version = 1\n"+inferPool+trainingPool))
	if err != nil {
		t.Fatal(err)
	}
	if p, declared := d.TrainPool(); p.Name != "gym" || !declared {
		t.Errorf("TrainPool() = %+v, %v, want gym, true", p, declared)
	}
	if p := d.InferPools(); len(p) != 1 || p[0].Name != "a" {
		t.Errorf("InferPools() = %+v, want a", p)
	}
	if p, declared := DefaultDeployment().TrainPool(); p.Name != "train" || p.Model != ModelTiny || !p.Trains() ||
		declared {
		t.Errorf("TrainPool() of the default = %+v, %v", p, declared)
	}
	for _, c := range []struct{ text, want string }{
		{trainingPool + strings.Replace(trainingPool, "gym", "gym2", 1), "pool[1].executor: an earlier pool trains"},
		{strings.Replace(trainingPool, "rollout/tiny", "m", 1), `pool[0].model: "m" can't be trained here`},
		{strings.Replace(trainingPool, `"train"`, `"trian"`, 1),
			`pool[0].executor: "trian" is not a valid executor; did you mean "train"?`},
		{strings.Replace(inferPool, `"a"`, `"train"`, 1), `pool[0].name: "train" is the name of the built-in training pool`},
	} {
		if _, err := ParseDeployment("rollout.toml", []byte("schema_version = 1\n"+c.text)); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
