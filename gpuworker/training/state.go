package training

import (
	"encoding/json"
	"os"
	"path/filepath"

	"rollout/gpuworker/tinylm/model"
	"rollout/gpuworker/tinylm/weights"
	"rollout/gpuworker/training/curve"
	"rollout/shared/config"
	"rollout/shared/fault"
)

// The files of a state. Any of them can be read without this package: JSON, and
// safetensors of float32.
const (
	stateFile   = "state.json"
	modelFile   = "model.safetensors"   // parameters, shape and tokenizer; see package weights
	headFile    = "head.safetensors"    // of a reward model alone
	momentsFile = "moments.safetensors" // of AdamW alone: first.<tensor>, second.<tensor>
)

// schema is the version of state.json.
const schema = 1

// state is state.json: all but arrays. Nothing in it depends on when or where
// a training ran, or on where its dataset lies.
type state struct {
	Schema    int              `json:"schema"`
	Algorithm config.Algorithm `json:"algorithm"`
	Step      int              `json:"step"` // also the schedule's position
	Cursor    cursor           `json:"cursor"`
	LR        float64          `json:"lr"` // of the next step
	Dataset   datasetID        `json:"dataset"`
	Tokenizer string           `json:"tokenizer"` // its hash
	Loss      curve.Curve      `json:"loss"`
}

// cursor says which rows come next: a function of step and settings, written
// down for people and compared when it is read.
type cursor struct {
	Epoch uint64 `json:"epoch"`
	Row   uint64 `json:"row"` // of the epoch's order
}

type datasetID struct {
	Digest string `json:"digest"` // blake3 of the file
	Rows   uint64 `json:"rows"`
}

// Meta is what a snapshot's document says of a state.
type Meta struct {
	Step  int      `json:"step"`
	Steps int      `json:"steps"`
	Epoch uint64   `json:"epoch"`
	Loss  *float64 `json:"loss,omitempty"` // the curve's last point
}

// Meta describes the state as it is.
func (t *Trainer) Meta() Meta {
	m := Meta{Step: t.step, Steps: t.settings.Budget.MaxSteps, Epoch: t.cursor().Epoch}
	if n := len(t.curve.Points); n > 0 {
		m.Loss = &t.curve.Points[n-1]
	}
	return m
}

func (t *Trainer) cursor() cursor {
	position := uint64(t.step) * uint64(t.settings.Minibatch*t.settings.Accumulation)
	return cursor{position / t.order.Rows, position % t.order.Rows}
}

func (t *Trainer) state() state {
	return state{Schema: schema, Algorithm: withoutPath(t.algorithm), Step: t.step, Cursor: t.cursor(), LR: t.optimizer.schedule.Rate(t.step + 1),
		Dataset: datasetID{t.rows.Digest(), t.rows.Rows()}, Tokenizer: t.tokenizer.Hash(), Loss: t.curve}
}

// withoutPath leaves out where the dataset lies: its digest says what it is.
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

// Save writes the state into an empty folder. Equal states are equal bytes.
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
		if files[headFile], err = pack(t.optimizer.head()); err != nil {
			return err
		}
	}
	if t.optimizer.moments {
		if files[momentsFile], err = pack(t.optimizer.momentTensors()); err != nil {
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

func pack(ts []model.Tensor) ([]byte, error) {
	f := weights.File{Tensors: ts}
	return f.Encode(weights.F32)
}

// head lists the tensor of a reward model's head, which is the last part.
func (u *optimizer) head() []model.Tensor {
	p := u.parts[len(u.parts)-1]
	return []model.Tensor{{Name: p.name, Shape: p.shape, Data: p.parameters}}
}

// momentTensors lists the moments; data is not a copy.
func (u *optimizer) momentTensors() (out []model.Tensor) {
	for _, p := range u.parts {
		out = append(out, model.Tensor{Name: "first." + p.name, Shape: p.shape, Data: p.first},
			model.Tensor{Name: "second." + p.name, Shape: p.shape, Data: p.second})
	}
	return out
}
