package config

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"rollout/shared/fault"
)

// documented returns an example of the product's specification. The example
// names a model that the built-in trainer refuses; ModelTiny replaces it.
func documented(t *testing.T, name string) string {
	t.Helper()
	src, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	_, err = ParseTrain(name, src)
	if err == nil || strings.Count(err.Error(), "\n") > 0 ||
		!strings.Contains(err.Error(), `"Qwen/Qwen2.5-0.5B-Instruct" can't be trained here`) {
		t.Errorf("%s: got %v, want only that the model is refused", name, err)
	}
	return strings.ReplaceAll(string(src), "Qwen/Qwen2.5-0.5B-Instruct", ModelTiny)
}

func TestParseTrainReadsDocumentedFineTuning(t *testing.T) {
	t.Parallel()
	got, err := ParseTrain("d/sft.toml", []byte(documented(t, "train_sft.toml")))
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultTrain()
	want.Storage = TrainStorage{Backend: "embedded", Embedded: EmbeddedStorage{"./rollout.db"}}
	want.Algorithm = Algorithm{Kind: "sft", SFT: DefaultSFT()}
	s := want.Algorithm.SFT
	s.BaseModel.URI, s.Minibatch, s.LossOn.Kind, s.Dataset.Path = ModelTiny, 1, LossFull, "./data/sft.jsonl"
	s.Optimizer.Kind, s.Optimizer.LR, s.Budget.MaxSteps, s.Packing.MaxSeqLen = OptimizerSGD, 0.01, 10, 64
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if got.StateDir("d/sft.toml") != "./rollout.db" || got.OutputDir("d/sft.toml") != "d/sft" {
		t.Errorf("StateDir = %s, OutputDir = %s", got.StateDir("d/sft.toml"), got.OutputDir("d/sft.toml"))
	}
}

func TestParseTrainReadsDocumentedRewardModel(t *testing.T) {
	t.Parallel()
	got, err := ParseTrain("rm.toml", []byte(documented(t, "train_rm.toml")))
	if err != nil {
		t.Fatal(err)
	}
	want := DefaultTrain()
	want.Algorithm = Algorithm{Kind: "rm", RM: DefaultRM()}
	r := want.Algorithm.RM
	r.BaseModel.URI, r.Minibatch, r.Dataset.Path = ModelTiny, 8, "examples/data/pairs.jsonl"
	r.Optimizer.Kind, r.Optimizer.LR, r.Budget.MaxSteps = OptimizerSGD, 1e-5, 100
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if got.StateDir("rm.toml") != "rm/.rollout" {
		t.Errorf("StateDir = %s", got.StateDir("rm.toml"))
	}
}

func TestParseTrainProblems(t *testing.T) {
	t.Parallel()
	const sft = "[algorithm.sft]\nbase_model = 'rollout/tiny'\n" +
		"budget.max_steps = 1\ndataset.path = 'x'\noptimizer.lr = 1\n"
	for _, c := range []struct{ name, src, want string }{
		{"empty file", "", `x.toml: algorithm.kind: missing: name what to train, "sft" or "rm"`},
		{"kind without settings", "algorithm.kind = 'rm'",
			"x.toml:1: algorithm.rm: missing: add [algorithm.rm] with base_model, dataset, optimizer and budget"},
		{"settings of both kinds without kind", sft + "[algorithm.rm]\n",
			`x.toml:1: algorithm.kind: missing: the file has settings of both kinds; name the one to use, "sft" or "rm"`},
		{"kind of a later version", "[algorithm]\nkind = 'ppo'\n",
			`x.toml:2: algorithm.kind: "ppo" is not a valid algorithm: use sft or rm`},
		{"algorithm is a number", "algorithm = 3", `x.toml:1: algorithm: must be a table, is 3
x.toml:1: algorithm.kind: missing: name what to train, "sft" or "rm"`},
		{"required settings missing", "[algorithm.sft]\n",
			`x.toml:1: algorithm.sft.base_model.uri: missing: name "rollout/tiny", or "snapshot:" and the id of a snapshot
x.toml:1: algorithm.sft.dataset.path: missing: name the file of rows, such as "data/rows.jsonl"
x.toml:1: algorithm.sft.optimizer.lr: must be above 0 and at most 1000, is 0
x.toml:1: algorithm.sft.budget.max_steps: must be at least 1, is 0 or missing: ` +
				`set the number of steps after which the training ends`},
		{"unknown table", sft + "[algorithm.sft.x]\n",
			"x.toml:6: algorithm.sft.x: unknown key in [algorithm.sft]: remove it"},
		{"invalid snapshot id", strings.Replace(sft, "rollout/tiny", "snapshot:abc", 1),
			`x.toml:2: algorithm.sft.base_model.uri: "snapshot:abc" is not a snapshot: write the id of 64 digits of ` +
				`0-9 and a-f that ` + "`rollout snapshot list` shows"},
		{"warm-up longer than the training", sft + "optimizer.schedule='linear'\noptimizer.warmup_steps = 2",
			`x.toml:7: algorithm.sft.optimizer.warmup_steps: must be at most budget.max_steps (1), is 2: the schedule ` +
				`"linear" begins after the warm-up`},
		{"NaN", strings.Replace(sft, "lr = 1", "lr = nan", 1),
			"x.toml:5: algorithm.sft.optimizer.lr: must be above 0 and at most 1000, is NaN"},
		{"misspelt setting", sft + "minibatchsize = 1",
			"x.toml:6: algorithm.sft.minibatchsize: unknown key; did you mean minibatch_size?"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseTrain("x.toml", []byte(c.src))
			if err == nil || !strings.Contains(err.Error(), c.want) || !fault.Is(err, fault.Invalid) {
				t.Errorf("got\n%v\nwant\n%s", err, c.want)
			}
		})
	}
}

func TestParseTrainAcceptsSnapshotAsBaseModel(t *testing.T) {
	t.Parallel()
	uri := "snapshot:" + strings.Repeat("0a", 32)
	src := "[algorithm.rm]\nbase_model = '" + uri + "'\n" +
		"budget.max_steps = 1\ndataset.path = 'x'\noptimizer.lr = 1\n"
	got, err := ParseTrain("x.toml", []byte(src))
	if err != nil || got.Algorithm.Common().BaseModel.URI != uri {
		t.Errorf("%+v, %v", got, err)
	}
	if err := got.Check(); err != nil {
		t.Errorf("parsed, but Check returns %v", err)
	}
}
