package training

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/weights"
	"rollout/gpuworker/training/curve"
	"rollout/shared/config"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// The files of a state. Other programs can read all of them: they are JSON, and
// safetensors of float32.
const (
	stateFile   = "state.json"
	modelFile   = "model.safetensors"   // parameters, shape and tokenizer; see package weights
	headFile    = "head.safetensors"    // score head; only of a reward model
	momentsFile = "moments.safetensors" // first.<tensor> and second.<tensor>; only with AdamW
)

// schema is the version of state.json.
const schema = 1

// state is the contents of state.json: everything except arrays. It does not depend
// on the time, the machine or the dataset's path.
type state struct {
	Schema    int              `json:"schema"`
	Algorithm config.Algorithm `json:"algorithm"`
	Step      int              `json:"step"` // steps taken, also the schedule's position
	Cursor    cursor           `json:"cursor"`
	LR        float64          `json:"lr"` // learning rate of the next step
	Dataset   datasetID        `json:"dataset"`
	Tokenizer string           `json:"tokenizer"` // hash of the tokenizer
	Loss      curve.Curve      `json:"loss"`
}

// cursor is the position of the next row. It is a function of step and settings.
// The file has it for human readers, and Restore checks it.
type cursor struct {
	Epoch uint64 `json:"epoch"`
	Row   uint64 `json:"row"` // position in the epoch's order
}

// datasetID identifies the contents of a dataset.
type datasetID struct {
	Digest string `json:"digest"` // blake3 of the file
	Rows   uint64 `json:"rows"`
}

// Meta returns the metadata of a snapshot of the current state.
func (t *Trainer) Meta() record.TrainingMeta {
	m := record.TrainingMeta{Step: t.step, Steps: t.settings.Budget.MaxSteps, Epoch: t.cursor().Epoch}
	if n := len(t.curve.Points); n > 0 {
		m.Loss = &t.curve.Points[n-1]
		m.Curve = &record.TrainingCurve{}
	}
	for _, p := range t.curve.Thin(record.MaxTrainingCurve) {
		m.Curve.Steps = append(m.Curve.Steps, p.Step)
		m.Curve.Loss = append(m.Curve.Loss, float32(min(p.Loss, math.MaxFloat32)))
		m.Curve.LR = append(m.Curve.LR, float32(t.optimizer.schedule.Rate(p.Step)))
	}
	return m
}

func (t *Trainer) cursor() cursor {
	position := uint64(t.step) * uint64(t.settings.Minibatch*t.settings.Accumulation)
	return cursor{position / t.order.Rows, position % t.order.Rows}
}

func (t *Trainer) state() state {
	return state{
		Schema: schema, Algorithm: withoutPath(t.algorithm), Step: t.step, Cursor: t.cursor(),
		LR: t.optimizer.schedule.Rate(t.step + 1), Dataset: datasetID{t.rows.Digest(), t.rows.Rows()},
		Tokenizer: t.tokenizer.Hash(), Loss: t.curve,
	}
}

// withoutPath removes the dataset's path; the state identifies the dataset by its
// digest.
func withoutPath(a config.Algorithm) config.Algorithm {
	if a.SFT != nil {
		s := *a.SFT
		s.Dataset.Path = ""
		a.SFT = &s
	}
	if a.RM != nil {
		r := *a.RM
		r.Dataset.Path = ""
		a.RM = &r
	}
	return a
}

// Save writes the state into an empty folder. Equal states give equal bytes.
func (t *Trainer) Save(folder string) error {
	text, err := json.MarshalIndent(t.state(), "", "  ")
	if err != nil {
		return err
	}
	parameters, err := weights.Pack(t.settings.BaseModel.URI, t.model, t.tokenizer, weights.F32)
	if err != nil {
		return err
	}
	files := map[string][]byte{stateFile: append(text, '\n'), modelFile: parameters}
	if t.head != nil {
		if files[headFile], err = encodeTensors(t.optimizer.head()); err != nil {
			return err
		}
	}
	if t.optimizer.moments {
		if files[momentsFile], err = encodeTensors(t.optimizer.momentTensors()); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			return fault.WithKind(fault.Unavailable, err, "save the training's state")
		}
	}
	return nil
}

func encodeTensors(ts []model.Tensor) ([]byte, error) {
	f := weights.File{Tensors: ts}
	return f.Encode(weights.F32)
}

// head returns the tensor of a reward model's score head, which is the last part.
func (u *optimizer) head() []model.Tensor {
	p := u.parts[len(u.parts)-1]
	return []model.Tensor{{Name: p.name, Shape: p.shape, Data: p.parameters}}
}

// momentTensors returns the moments. Data is not a copy.
func (u *optimizer) momentTensors() (out []model.Tensor) {
	for _, p := range u.parts {
		out = append(out, model.Tensor{Name: "first." + p.name, Shape: p.shape, Data: p.first},
			model.Tensor{Name: "second." + p.name, Shape: p.shape, Data: p.second})
	}
	return out
}
