package poolcheck_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/core/gpus"
	"rollout/shared/core/modelsize"
	"rollout/shared/fault"
	"rollout/shared/poolcheck"
)

// configsOf are the configs of the models in the document, by their parameters.
var configsOf = map[string]string{
	"half": `{"hidden_size":896,"intermediate_size":4864,"max_position_embeddings":32768,"num_attention_heads":14,
		"num_hidden_layers":24,"num_key_value_heads":2,"vocab_size":151936,"tie_word_embeddings":true,
		"torch_dtype":"bfloat16"}`,
	"eight": llama8,
	"thirty": `{"hidden_size":5120,"intermediate_size":27648,"max_position_embeddings":32768,"num_attention_heads":40,
		"num_hidden_layers":64,"num_key_value_heads":8,"vocab_size":152064,"torch_dtype":"bfloat16"}`,
	"seventy": `{"hidden_size":8192,"intermediate_size":28672,"max_position_embeddings":131072,"num_attention_heads":64,
		"num_hidden_layers":80,"num_key_value_heads":8,"vocab_size":128256,"torch_dtype":"bfloat16"}`,
}

// row matches the rows of the document's table: parameters, weights in all, GPUs and their
// memory, weights of each, what is left, what is needed, the largest context and the disk.
var row = regexp.MustCompile(`(?m)^\| ([\d.]+) billion \| ([\d.]+) GiB \| (\d) × ([\d.]+) GiB \| ([\d.]+) GiB \| ` +
	`([\d.]+) GiB \| ([\d.]+) GiB \| ([\d,]+) \| (\d+) of ([\d,]+) GB \| `)

// The document's pools start, by the arithmetic of deploy, submit and doctor, and its table
// has the numbers of that arithmetic.
func TestPoolsOfTheDocumentStart(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../infra/aws/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "## Pools for models of any size")
	_, src, found := strings.Cut(section, "```toml\n")
	src, _, _ = strings.Cut(src, "```")
	d, err := config.ParseDeployment("README.md", []byte(src))
	if err != nil || !ok || !found || len(d.Pools) != 4 {
		t.Fatalf("the document has %d pools, %v", len(d.Pools), err)
	}
	rows := row.FindAllStringSubmatch(section, -1)
	if len(rows) != len(d.Pools) {
		t.Fatalf("the table has %d rows", len(rows))
	}
	for i, p := range d.Pools {
		model, err := modelsize.Parse([]byte(configsOf[p.Name]), 0)
		if err != nil {
			t.Fatal(err)
		}
		r := poolcheck.Check(d, p, &model, "")
		if len(r.Problems) > 0 || len(r.Notes) == 0 {
			t.Errorf("%s: problems %q, notes %q", p.Name, r.Problems, r.Notes)
		}
		m := d.MachinesOf(p)
		machine, _ := gpus.Of(m.InstanceTypes[0])
		context, _ := strconv.Atoi(append(m.EngineArgs, "", "0")[1])
		f := model.Fit(modelsize.Card{GiB: machine.GPU.GiB(), Parallel: m.TensorParallel}, context)
		want := fmt.Sprintf("%.1f %d %.1f %.1f %.1f %.1f %d %.0f %d", model.WeightBytes/(1<<30), m.TensorParallel,
			machine.GPU.GiB(), f.WeightsGiB, f.LeftGiB, f.CacheGiB, f.Most, model.WeightBytes/1e9+30, machine.LocalGB)
		got := strings.ReplaceAll(strings.Join(rows[i][2:], " "), ",", "")
		if got != want {
			t.Errorf("%s: the table says %s, want %s", p.Name, got, want)
		}
	}
}

// Without engine_args the pool of 8 billion parameters would not start, and is told so.
func TestDocumentsPoolNeedsItsContext(t *testing.T) {
	t.Parallel()
	m := poolcheck.Models{Object: func(_ context.Context, _, key string) ([]byte, error) {
		if strings.HasSuffix(key, "/config.json") {
			return []byte(configsOf["eight"]), nil
		}
		return nil, fault.New(fault.NotFound, "no %s", key)
	}}
	r := check(t, m, awsHead+pool("s3://models/8b", "instance_types = ['g6.xlarge', 'g5.xlarge', 'g6e.xlarge']"))
	if len(r.Problems) != 2 || !strings.Contains(r.Problems[0], "L4 (g6.xlarge)") ||
		!strings.Contains(r.Problems[1], "A10G (g5.xlarge)") || !strings.Contains(strings.Join(r.Notes, ""), "L40S (g6e") {
		t.Errorf("%+v", r)
	}
}
