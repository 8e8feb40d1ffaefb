package doctor_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"rollout/scripts/rollout/doctor"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/poolcheck"
)

func TestModelsThatDoNotFitFailTheCheck(t *testing.T) {
	t.Parallel()
	const model = `{"hidden_size":4096,"intermediate_size":14336,"max_position_embeddings":131072,
		"num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":8,"vocab_size":128256}`
	m := poolcheck.Models{Object: func(_ context.Context, _, key string) ([]byte, error) {
		if key == "8b/config.json" {
			return []byte(model), nil
		}
		return nil, fault.New(fault.NotFound, "%s is not there", key)
	}}
	probe := func(pool string) (string, error) {
		d, err := config.ParseDeployment("rollout.toml", []byte("schema_version = 1\n[cloud]\nprovider = 'aws'\n"+
			"region = 'us-east-1'\ns3.bucket = 'acme'\n[[pool]]\nname = 'p'\n"+pool))
		if err != nil {
			t.Fatal(err)
		}
		return doctor.CheckModels(m, d).Probe(t.Context())
	}
	if _, err := probe("model = 's3://models/8b'\ninstance_types = ['g6.xlarge']"); !fault.Is(err, fault.Exhausted) ||
		!strings.Contains(err.Error(), `set engine_args = ["--max-model-len", "38912"]`) {
		t.Errorf("a context that is too long: %v", err)
	}
	found, err := probe("model = 's3://models/8b'\ninstance_types = ['g6.xlarge']\n" +
		"engine_args = ['--max-model-len=32768']")
	if err != nil || !strings.Contains(found, "fits on one L4") {
		t.Errorf("one that fits: %s, %v", found, err)
	}
	var unseen *cloud.Unseen
	if _, err := probe("model = 's3://models/none'"); !errors.As(err, &unseen) ||
		!strings.Contains(unseen.Reason, "is not there") {
		t.Errorf("an unknown model: %v", err)
	}
}
