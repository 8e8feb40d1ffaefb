package submit_test

import (
	"strings"
	"testing"

	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
)

const trainConfig = `schema_version = 1
kind = "train"
[algorithm.sft]
base_model = "rollout/tiny"
[algorithm.sft.optimizer]
lr = 0.001
[algorithm.sft.budget]
max_steps = 10
`

func TestTrainingConfigMakesATraining(t *testing.T) {
	t.Parallel()
	d := newFixture(t)
	d.put("prompts/x.toml", trainConfig)
	m := d.upload("prompts/x.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\"}\n")
	if m.Refused != "" || m.Kind != config.KindTrain || m.Pool != "train" || m.ModelURI != config.ModelTiny ||
		m.ModelID != identity.Model(config.ModelTiny, "").String() || m.Dialect != "plain" ||
		m.Config.Algorithm.SFT.Budget.MaxSteps != 10 {
		t.Errorf("%+v", m)
	}
	trainers := config.Pool{Name: "trainers", Model: config.ModelTiny, Executor: config.ExecutorTrain}
	d.deploy.Pools = append(d.deploy.Pools, trainers)
	d.put("prompts/y.toml", trainConfig)
	if m := d.upload("prompts/y.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\"}\n"); m.Pool != "trainers" {
		t.Errorf("with a pool of that kind it goes to %s", m.Pool)
	}
	if m := d.upload("prompts/z.jsonl", prompt); m.Kind != config.KindBatch || m.Pool != "default" {
		t.Errorf("prompts go to %s as %s", m.Pool, m.Kind)
	}
}

func TestTrainingWithoutModelOrRowsIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ config, rows, want string }{
		{strings.Replace(trainConfig, "rollout/tiny", "meta-llama/Llama-3.2-1B", 1), "{}\n",
			`"meta-llama/Llama-3.2-1B" can't be trained here`},
		{trainConfig, "", "prompts/x.jsonl has no rows"},
		{trainConfig, "\xff\xfe{\x00}\x00", "UTF-16"},
	} {
		d := newFixture(t)
		d.put("prompts/x.toml", c.config)
		if m := d.upload("prompts/x.jsonl", c.rows); !strings.Contains(m.Refused, c.want) {
			t.Errorf("refused with %q, want %q", m.Refused, c.want)
		}
	}
}

// A cloud has queues and machines only for the pools of its config: the built-in training pool
// is not one of them.
func TestTrainingInACloudNeedsAPoolOfTheConfig(t *testing.T) {
	t.Parallel()
	trainers := config.Pool{Name: "trainers", Model: config.ModelTiny, Executor: config.ExecutorTrain}
	d := newFixture(t)
	d.deploy.Cloud.Provider, d.deploy.Pools = config.ProviderAWS, []config.Pool{trainers}
	if m := d.upload("prompts/x.jsonl", prompt); !strings.Contains(m.Refused, "no pool that answers prompts") {
		t.Errorf("prompts without a pool are refused with %q", m.Refused)
	}
	for _, c := range []struct {
		pools         []config.Pool
		pool, refused string
	}{
		{nil, "", `the installation has no pool that trains (add a [[pool]] with executor = "train"`},
		{[]config.Pool{trainers}, "trainers", ""},
	} {
		d := newFixture(t)
		d.at = cloud.Capabilities{ManagedFleet: true}
		d.deploy.Cloud.Provider = config.ProviderAWS
		d.deploy.Pools = append(d.deploy.Pools, c.pools...)
		d.put("prompts/x.toml", trainConfig)
		m := d.upload("prompts/x.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\"}\n")
		if m.Pool != c.pool || !strings.Contains(m.Refused, c.refused) || (m.Refused == "") != (c.refused == "") {
			t.Errorf("with %d pools: it goes to the pool %q, refused with %q", len(d.deploy.Pools), m.Pool, m.Refused)
		}
	}
}
