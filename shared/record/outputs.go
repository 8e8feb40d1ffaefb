package record

import (
	"rollout/shared/core/shard"
	"rollout/shared/grade"
)

// OutputSegment is an object that describes what the shards From to To, exclusive,
// contribute to a run's output files. It is written create-only, so that of all
// segments that begin with one shard the first stands. The segments from shard 0
// on, each beginning where the one before ends, make up the whole files, although
// several executions may write segments of different lengths.
type OutputSegment struct {
	Schema      int          `json:"schema"`
	From        int          `json:"from"`
	To          int          `json:"to"`
	Completions Rows         `json:"completions"`
	Errors      Rows         `json:"errors"`
	Entries     Rows         `json:"entries,omitzero"` // of the shards: see FileEntriesKey
	Counts      shard.Counts `json:"counts"`
	Copies      int          `json:"copies,omitempty"`
	Workers     []string     `json:"workers,omitempty"`
	// Scores sum up the scores of the rows; nil in a run without graders.
	Scores *grade.Totals `json:"scores,omitempty"`
	// Roles are the counts of the roles from 1 on. Their rows are in no output file.
	Roles []shard.Counts `json:"roles,omitempty"`
}

// Rows names an object of rows. With a Length of 0 the object need not exist.
type Rows struct {
	Key    string `json:"key"`
	Length int64  `json:"length"`
}

// Job is the only line of the planned input of a training: it represents the
// training as an item, and names its dataset. Plan writes it to JobKey.
type Job struct {
	ID      string  `json:"id"`
	Prompt  string  `json:"prompt"` // for users
	Dataset Dataset `json:"dataset"`
}

// Dataset is a file of training rows, pinned to a version.
type Dataset struct {
	Key     string `json:"key"`
	Version string `json:"version"`
	Size    int64  `json:"size"`
	Name    string `json:"name"` // for users
	// Digest is that of its bytes, in hex, which decides whether another version has the same
	// rows; "" in jobs of old plans.
	Digest string `json:"digest,omitempty"`
}

// Trained is the output row of a training: its outcome. Finalize copies its Files
// to the run's output files.
type Trained struct {
	ID        string   `json:"id"`
	Algorithm string   `json:"algorithm"`
	BaseModel string   `json:"base_model"`
	Steps     int      `json:"steps"`      // steps taken
	Snapshot  string   `json:"snapshot"`   // after the last step; equal trainings have equal snapshots
	TrainLoss *float64 `json:"train_loss"` // of the last steps; null before the first
	// Rows, Loss and Accuracy evaluate the trained model on the first rows of its
	// dataset: the number of rows, the mean loss and, for a reward model, the share
	// of pairs whose better answer has the higher reward. They are 0 and null for a
	// training that was ended early.
	Rows     int           `json:"rows"`
	Loss     float64       `json:"loss"`
	Accuracy *float64      `json:"accuracy"`
	Files    []TrainedFile `json:"files"`
}

// TrainingMeta is the metadata of a snapshot of a training.
type TrainingMeta struct {
	Step  int      `json:"step"`  // steps taken
	Steps int      `json:"steps"` // total number of steps
	Epoch uint64   `json:"epoch"`
	Loss  *float64 `json:"loss,omitempty"` // last point of the loss curve
	// Curve is how the training went on until then; nil before the first step, and in snapshots of
	// earlier versions.
	Curve *TrainingCurve `json:"curve,omitempty"`
}

// MaxTrainingCurve bounds the points of a TrainingCurve, so that documents stay short.
const MaxTrainingCurve = 200

// TrainingCurve has the losses and learning rates of a training at some of its steps, in their
// order: lists of the same length.
type TrainingCurve struct {
	Steps []int     `json:"steps"` // from 1
	Loss  []float32 `json:"loss"`  // the mean since the point before, in nats
	LR    []float32 `json:"lr"`    // of the step
}

// TrainedFile is a file that a training leaves for users. Until the end of the run
// it is at TrainingFileKey of its content.
type TrainedFile struct {
	Name    string `json:"name"`    // under runs/<run>/
	Content string `json:"content"` // blake3, hex
	Length  int64  `json:"length"`
}
