package training

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/weights"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// The maximum sizes of a state's files, in bytes.
const (
	maxState = 4 << 20
	maxArray = 1 << 31
)

// Restore sets the trainer to the state that Save wrote into the folder. The state
// must be of the same training: algorithm, settings, model shape, tokenizer and
// dataset. If one of them differs, Restore returns an Invalid fault that says
// which; for a damaged state, a Corrupt fault. After an error, the trainer is
// unchanged.
func (t *Trainer) Restore(folder string) error {
	var s state
	if err := readState(folder, &s); err != nil {
		return err
	}
	if err := t.sameTraining(s); err != nil {
		return err
	}
	saved, err := readModel(folder)
	if err != nil {
		return err
	}
	switch {
	case saved.Model.Config() != t.model.Config():
		return fault.New(fault.Invalid, "the state has a model of another shape: %+v, not %+v",
			saved.Model.Config(), t.model.Config())
	case saved.Tokenizer.Hash() != s.Tokenizer:
		return fault.New(fault.Corrupt, "%s and %s of the state have different tokenizers", stateFile, modelFile)
	}
	var head, moments []model.Tensor
	if t.head != nil {
		if head, err = readTensors(folder, headFile, t.optimizer.head()); err != nil {
			return err
		}
	}
	if t.optimizer.moments {
		if moments, err = readTensors(folder, momentsFile, t.optimizer.momentTensors()); err != nil {
			return err
		}
	}
	fill(t.model.Tensors(), saved.Model.Tensors())
	if head != nil {
		fill(t.optimizer.head(), head)
	}
	if moments != nil {
		fill(t.optimizer.momentTensors(), moments)
	}
	t.step, t.curve = s.Step, s.Loss
	return nil
}

// sameTraining returns a fault if the state is of another training, or
// inconsistent.
func (t *Trainer) sameTraining(s state) error {
	now := t.state()
	if s.Algorithm.Kind != now.Algorithm.Kind {
		return fault.New(fault.Invalid, "the state is of a training of kind %q, this one is of kind %q",
			s.Algorithm.Kind, now.Algorithm.Kind)
	}
	if d := s.Dataset; d != now.Dataset {
		return &fault.Error{
			Kind: fault.Invalid,
			Err: fault.New(fault.Invalid,
				"the state was trained on another dataset, with %d rows and the digest %.16s…; "+
					"%s has %d rows and the digest %.16s…",
				d.Rows, d.Digest, t.rows.Name(), now.Dataset.Rows, now.Dataset.Digest),
			Remedy: "use the dataset that it was trained on, " + newTrainingRemedy,
		}
	}
	if s.Tokenizer != now.Tokenizer {
		return fault.New(fault.Invalid, "the state was trained with another tokenizer: %.16s…, not %.16s…",
			s.Tokenizer, now.Tokenizer)
	}
	if err := checkSameSettings(s.Algorithm, now.Algorithm); err != nil {
		return err
	}
	restored := *t
	restored.step = s.Step
	if s.Step < 0 || s.Cursor != restored.cursor() || !s.Loss.Valid() || s.Loss.Steps != s.Step {
		return fault.New(fault.Corrupt, "%s of the state is inconsistent: step %d, cursor %+v, %d losses",
			stateFile, s.Step, s.Cursor, s.Loss.Steps)
	}
	return nil
}

// newTrainingRemedy is the end of remedies for a state of another training.
const newTrainingRemedy = "or start a new training run with base_model \"" + config.SnapshotPrefix + "ID\""

// readState reads state.json of a state.
func readState(folder string, s *state) error {
	b, err := read(folder, stateFile, maxState)
	if err != nil {
		return err
	}
	var version struct {
		Schema int `json:"schema"`
	}
	if err := json.Unmarshal(b, &version); err != nil {
		return fault.WithKind(fault.Corrupt, err, "%s of the state", stateFile)
	}
	if version.Schema != schema {
		return &fault.Error{
			Kind: fault.Invalid, Remedy: "resume with the rollout that wrote it",
			Err: fault.New(fault.Invalid, "the state is of version %d, this rollout reads version %d", version.Schema, schema),
		}
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(s); err != nil {
		return fault.WithKind(fault.Corrupt, err, "%s of the state", stateFile)
	}
	if s.Algorithm.Common().Minibatch < 1 {
		return fault.New(fault.Corrupt, "%s of the state has no settings of kind %.40q", stateFile, s.Algorithm.Kind)
	}
	return nil
}

// readModel reads the parameters of a state.
func readModel(folder string) (*weights.Bundle, error) {
	b, err := read(folder, modelFile, maxArray)
	if err != nil {
		return nil, err
	}
	bundle, err := weights.Load(b)
	return bundle, fault.Wrap(err, "%s of the state", modelFile)
}

// readTensors reads a file of tensors. The file must have the names and shapes of
// want, in that order.
func readTensors(folder, name string, want []model.Tensor) ([]model.Tensor, error) {
	b, err := read(folder, name, maxArray)
	if err != nil {
		return nil, err
	}
	f, err := weights.Decode(b)
	if err != nil {
		return nil, fault.Wrap(err, "%s of the state", name)
	}
	same := func(a, b model.Tensor) bool { return a.Name == b.Name && slices.Equal(a.Shape, b.Shape) }
	if !slices.EqualFunc(f.Tensors, want, same) {
		return nil, fault.New(fault.Corrupt, "%s of the state does not have the tensors of this model", name)
	}
	for _, x := range f.Tensors {
		for _, v := range x.Data {
			if v-v != 0 {
				return nil, fault.New(fault.Corrupt, "%s of the state: %s has a value that is not finite", name, x.Name)
			}
		}
	}
	return f.Tensors, nil
}

func fill(into, from []model.Tensor) {
	for i := range into {
		copy(into[i].Data, from[i].Data)
	}
}

// read reads a file of a state. A missing file, and one of more than limit bytes,
// is a Corrupt fault.
func read(folder, name string, limit int64) ([]byte, error) {
	f, err := os.Open(filepath.Join(folder, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fault.New(fault.Corrupt, "the state has no %s: it is not the state of a training, or damaged", name)
	}
	if err != nil {
		return nil, fault.WithKind(fault.Unavailable, err, "read the state")
	}
	defer f.Close() // opened for reading, so an error loses no data
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fault.WithKind(fault.Unavailable, err, "read the state")
	}
	if int64(len(b)) > limit {
		return nil, fault.New(fault.Corrupt, "%s of the state has more than %d bytes", name, limit)
	}
	return b, nil
}

// LoadBase reads the model of a state as the base model of another training. uri is
// the base model's name in the settings.
func LoadBase(folder, uri string) (Base, error) {
	bundle, err := readModel(folder)
	if err != nil {
		return Base{}, err
	}
	base := Base{URI: uri, Model: bundle.Model, Tokenizer: bundle.Tokenizer}
	if _, err := os.Stat(filepath.Join(folder, headFile)); errors.Is(err, fs.ErrNotExist) {
		return base, nil
	}
	score := make([]float32, bundle.Model.Config().Width)
	want := []model.Tensor{{Name: scoreName, Shape: []int{1, len(score)}, Data: score}}
	head, err := readTensors(folder, headFile, want)
	if err != nil {
		return Base{}, err
	}
	base.RewardHead = head[0].Data
	return base, nil
}
