package training

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rollout/shared/config"
	"rollout/shared/fault"
)

func TestStateOfAnotherTrainingIsRefused(t *testing.T) {
	t.Parallel()
	saved := sft().trainer(t)
	steps(t, saved, 2)
	folder := save(t, saved)
	for _, c := range []struct {
		name string
		l    trainingFixture
		want string
	}{
		{"other kind", rm(), `of kind "sft", this one is of kind "rm"`},
		{
			"other dataset", trainingFixture{algorithm: sft().algorithm, rows: examples + "\n"},
			"trained on another dataset, with 5 rows and the digest",
		},
		{
			"other learning rate", sft(func(s *config.SFT) { s.Optimizer.LR = 0.02 }),
			"the state was trained with algorithm.sft.optimizer.lr = 0.01, now it is 0.02 (restore the old value",
		},
		{
			"other seed", sft(func(s *config.SFT) { s.Seed = 2 }),
			"algorithm.sft.seed = 1, now it is 2",
		},
		{
			"with packing", sft(func(s *config.SFT) { s.Packing.Kind = config.PackingOn }),
			`algorithm.sft.packing.kind = "off", now it is "on"`,
		},
		{
			"other base model", sft(func(s *config.SFT) { s.BaseModel.URI = "snapshot:" + strings.Repeat("a", 64) }),
			`algorithm.sft.base_model.uri = "rollout/tiny", now it is "snapshot:`,
		},
		{
			"other number of steps with a cosine schedule", sft(func(s *config.SFT) { s.Budget.MaxSteps = 20 }),
			"algorithm.sft.budget.max_steps = 10, now it is 20",
		},
	} {
		tr := c.l.trainer(t)
		before := digest(t, save(t, tr))
		err := tr.Restore(folder)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
		if digest(t, save(t, tr)) != before {
			t.Errorf("%s: the failed Restore changed the trainer", c.name)
		}
	}
}

func TestRestoreAcceptsAnotherPathAndMoreStepsOfAConstantRate(t *testing.T) {
	t.Parallel()
	saved := rm().trainer(t)
	steps(t, saved, 10)
	tr := rm(func(r *config.RM) { r.Budget.MaxSteps, r.Dataset.Path = 12, "elsewhere.jsonl" }).trainer(t)
	if err := tr.Restore(save(t, saved)); err != nil {
		t.Fatal(err)
	}
	if taken, all := tr.Steps(); taken != 10 || all != 12 || tr.Done() {
		t.Errorf("%d of %d steps, want 10 of 12", taken, all)
	}
	steps(t, tr, 2)
}

func TestDamagedStateIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	saved := rm().trainer(t)
	steps(t, saved, 3)
	whole := save(t, saved)
	tr := rm().trainer(t)
	before := digest(t, save(t, tr))
	edit := func(old, with string) func([]byte) []byte {
		return func(b []byte) []byte { return bytes.Replace(b, []byte(old), []byte(with), 1) }
	}
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	cutBrace := func(b []byte) []byte { return b[:len(b)-2] } // the closing brace and the line break
	nan := func(b []byte) []byte { return append(b[:len(b)-4:len(b)-4], 0, 0, 0xc0, 0x7f) }
	for _, c := range []struct {
		name, file string
		change     func([]byte) []byte
		kind       fault.Kind
		want       string
	}{
		{"missing state", stateFile, nil, fault.Corrupt, "the state has no state.json"},
		{"missing model", modelFile, nil, fault.Corrupt, "the state has no model.safetensors"},
		{"missing head", headFile, nil, fault.Corrupt, "the state has no head.safetensors"},
		{"missing moments", momentsFile, nil, fault.Corrupt, "the state has no moments.safetensors"},
		{"truncated model", modelFile, cut, fault.Corrupt, "model.safetensors of the state"},
		{"truncated moments", momentsFile, cut, fault.Corrupt, "moments.safetensors of the state"},
		{"NaN in the moments", momentsFile, nan, fault.Corrupt, "a value that is not finite"},
		{"NaN in the head", headFile, nan, fault.Corrupt, "a value that is not finite"},
		{
			"misnamed moments", momentsFile, edit("first.model.norm.weight", "first.model.mron.weight"),
			fault.Corrupt, "does not have the tensors of this model",
		},
		{"invalid JSON", stateFile, cutBrace, fault.Corrupt, "state.json of the state"},
		{"unknown field", stateFile, edit(`"step"`, `"stepp"`), fault.Corrupt, `unknown field "stepp"`},
		{
			"newer version", stateFile, edit(`"schema": 1`, `"schema": 2`),
			fault.Invalid, "the state is of version 2, this rollout reads version 1",
		},
		{"wrong cursor", stateFile, edit(`"row": 0`, `"row": 1`), fault.Corrupt, "is inconsistent"},
		{"wrong step", stateFile, edit(`"step": 3`, `"step": 4`), fault.Corrupt, "is inconsistent"},
		{"negative step", stateFile, edit(`"step": 3`, `"step": -1`), fault.Corrupt, "is inconsistent"},
		{"other tokenizer", stateFile, edit(`"tokenizer": "`, `"tokenizer": "0`), fault.Invalid, "another tokenizer"},
		{
			"settings of another kind", stateFile, edit(`"kind": "rm"`, `"kind": "sft"`),
			fault.Corrupt, `no settings of kind "sft"`,
		},
	} {
		folder := t.TempDir()
		if err := os.CopyFS(folder, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, c.file)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if c.change == nil {
			err = os.Remove(path)
		} else {
			changed := c.change(slices.Clone(b))
			if bytes.Equal(changed, b) {
				t.Fatalf("%s: the test changed nothing in the file", c.name)
			}
			err = os.WriteFile(path, changed, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Restore(folder); !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
		if digest(t, save(t, tr)) != before {
			t.Errorf("%s: the failed Restore changed the trainer", c.name)
		}
	}
}

func TestLoadBaseReadsTheTrainedModel(t *testing.T) {
	t.Parallel()
	saved := rm().trainer(t)
	steps(t, saved, 3)
	base, err := LoadBase(save(t, saved), "snapshot:x")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(base.Model.Flat(), saved.model.Flat()) || !slices.Equal(base.RewardHead, saved.head.score) ||
		base.Tokenizer.Hash() != saved.tokenizer.Hash() {
		t.Error("model, head or tokenizer differ from those saved")
	}
	plain := sft().trainer(t)
	if base, err := LoadBase(save(t, plain), "snapshot:x"); err != nil || base.RewardHead != nil {
		t.Errorf("model without a score head: %v, %v; want a nil head", base.RewardHead, err)
	}
	if _, err := LoadBase(t.TempDir(), "snapshot:x"); !fault.Is(err, fault.Corrupt) {
		t.Errorf("empty folder: %v, want a Corrupt fault", err)
	}
}
