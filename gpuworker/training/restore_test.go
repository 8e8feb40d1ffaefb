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

func TestAStateOfAnotherTrainingIsRefused(t *testing.T) {
	t.Parallel()
	was := sft().trainer(t)
	steps(t, was, 2)
	folder := save(t, was)
	for _, c := range []struct {
		name string
		l    trainingFixture
		want string
	}{
		{"another kind", rm(), `of kind "sft", this one is of kind "rm"`},
		{"another dataset", trainingFixture{algorithm: sft().algorithm, rows: examples + "\n"}, "trained on another dataset, of 5 rows and the digest"},
		{"another learning rate", sft(func(s *config.SFT) { s.Optimizer.LR = 0.02 }), "the state was trained with algorithm.sft.optimizer.lr = 0.01, here it is 0.02 (set it back"},
		{"another order", sft(func(s *config.SFT) { s.Seed = 2 }), "algorithm.sft.seed = 1, here it is 2"},
		{"packed", sft(func(s *config.SFT) { s.Packing.Kind = config.PackingOn }), `algorithm.sft.packing.kind = "off", here it is "on"`},
		{"another base", sft(func(s *config.SFT) { s.BaseModel.URI = "snapshot:" + strings.Repeat("a", 64) }), `algorithm.sft.base_model.uri = "rollout/tiny", here it is "snapshot:`},
		{"another end of a schedule", sft(func(s *config.SFT) { s.Budget.MaxSteps = 20 }), "algorithm.sft.budget.max_steps = 10, here it is 20"},
	} {
		tr := c.l.trainer(t)
		before := digest(t, save(t, tr))
		err := tr.Restore(folder)
		if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
		if digest(t, save(t, tr)) != before {
			t.Errorf("%s: something changed", c.name)
		}
	}
}

func TestAnotherPlaceOfTheDatasetAndMoreStepsOfOneRateAreTheSameTraining(t *testing.T) {
	t.Parallel()
	was := rm().trainer(t)
	steps(t, was, 10)
	tr := rm(func(r *config.RM) { r.Budget.MaxSteps, r.Dataset.Path = 12, "elsewhere.jsonl" }).trainer(t)
	if err := tr.Restore(save(t, was)); err != nil {
		t.Fatal(err)
	}
	if taken, all := tr.Steps(); taken != 10 || all != 12 || tr.Done() {
		t.Errorf("%d of %d steps", taken, all)
	}
	steps(t, tr, 2)
}

func TestADamagedStateIsRefusedAndChangesNothing(t *testing.T) {
	t.Parallel()
	was := rm().trainer(t)
	steps(t, was, 3)
	whole := save(t, was)
	tr := rm().trainer(t)
	before := digest(t, save(t, tr))
	edit := func(old, with string) func([]byte) []byte {
		return func(b []byte) []byte { return bytes.Replace(b, []byte(old), []byte(with), 1) }
	}
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	nan := func(b []byte) []byte { return append(b[:len(b)-4:len(b)-4], 0, 0, 0xc0, 0x7f) }
	for _, c := range []struct {
		name, file string
		change     func([]byte) []byte
		kind       fault.Kind
		want       string
	}{
		{"no state", stateFile, nil, fault.Corrupt, "the state has no state.json"},
		{"no model", modelFile, nil, fault.Corrupt, "the state has no model.safetensors"},
		{"no head", headFile, nil, fault.Corrupt, "the state has no head.safetensors"},
		{"no moments", momentsFile, nil, fault.Corrupt, "the state has no moments.safetensors"},
		{"cut model", modelFile, cut, fault.Corrupt, "model.safetensors of the state"},
		{"cut moments", momentsFile, cut, fault.Corrupt, "moments.safetensors of the state"},
		{"no number", momentsFile, nan, fault.Corrupt, "a value that is no finite number"},
		{"no number in the head", headFile, nan, fault.Corrupt, "a value that is no finite number"},
		{"other moments", momentsFile, edit("first.model.norm.weight", "first.model.mron.weight"), fault.Corrupt, "does not have the tensors of this model"},
		{"no JSON", stateFile, cut2, fault.Corrupt, "state.json of the state"},
		{"unknown field", stateFile, edit(`"step"`, `"stepp"`), fault.Corrupt, `unknown field "stepp"`},
		{"a newer version", stateFile, edit(`"schema": 1`, `"schema": 2`), fault.Invalid, "the state is of version 2, this rollout reads version 1"},
		{"another cursor", stateFile, edit(`"row": 0`, `"row": 1`), fault.Corrupt, "does not fit together"},
		{"another step", stateFile, edit(`"step": 3`, `"step": 4`), fault.Corrupt, "does not fit together"},
		{"a step before all", stateFile, edit(`"step": 3`, `"step": -1`), fault.Corrupt, "does not fit together"},
		{"another tokenizer", stateFile, edit(`"tokenizer": "`, `"tokenizer": "0`), fault.Invalid, "another tokenizer"},
		{"no settings", stateFile, edit(`"kind": "rm"`, `"kind": "sft"`), fault.Corrupt, `no settings of kind "sft"`},
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
				t.Fatalf("%s: nothing was damaged", c.name)
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
			t.Errorf("%s: something changed", c.name)
		}
	}
}

// cut2 takes the closing brace and the line end away.
func cut2(b []byte) []byte { return b[:len(b)-2] }

func TestATrainedModelIsABaseOfOthers(t *testing.T) {
	t.Parallel()
	was := rm().trainer(t)
	steps(t, was, 3)
	base, err := LoadBase(save(t, was), "snapshot:x")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(base.Model.Flat(), was.model.Flat()) || !slices.Equal(base.RewardHead, was.head.score) || base.Tokenizer.Hash() != was.tokenizer.Hash() {
		t.Error("it is another model")
	}
	plain := sft().trainer(t)
	if base, err := LoadBase(save(t, plain), "snapshot:x"); err != nil || base.RewardHead != nil {
		t.Errorf("a model that is no reward model: %v, %v", base.RewardHead, err)
	}
	if _, err := LoadBase(t.TempDir(), "snapshot:x"); !fault.Is(err, fault.Corrupt) {
		t.Errorf("an empty folder: %v", err)
	}
}
