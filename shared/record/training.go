package record

// Job is the one line of the planned input of a run that trains: it stands for
// the training as an item, and names the rows that are learned from. Plan
// writes it to JobKey.
type Job struct {
	ID      string  `json:"id"`
	Prompt  string  `json:"prompt"` // for people
	Dataset Dataset `json:"dataset"`
}

// Dataset pins a file of rows.
type Dataset struct {
	Key     string `json:"key"`
	Version string `json:"version"`
	Size    int64  `json:"size"`
	Name    string `json:"name"` // what users know it by
}

// Trained is the output row of a training: what became of it. Finalize copies
// its files to where users read.
type Trained struct {
	ID        string   `json:"id"`
	Algorithm string   `json:"algorithm"`
	BaseModel string   `json:"base_model"`
	Steps     int      `json:"steps"`      // taken
	Snapshot  string   `json:"snapshot"`   // of the last step: equal trainings have equal ones
	TrainLoss *float64 `json:"train_loss"` // of the last steps; null before the first
	// Of the trained model on the first rows of its dataset: how many, the mean
	// loss and, of a reward model, the part of the pairs of which the better
	// answer has the higher reward. 0 and null of a training that was ended.
	Rows     int           `json:"rows"`
	Loss     float64       `json:"loss"`
	Accuracy *float64      `json:"accuracy"`
	Files    []TrainedFile `json:"files"`
}

// TrainedFile is a file that a training leaves for users, at FileKey of its
// content until the run's end.
type TrainedFile struct {
	Name    string `json:"name"`    // under runs/<run>/
	Content string `json:"content"` // blake3, hex
	Length  int64  `json:"length"`
}

// Names of the files of a training.
const (
	ModelFile = "model.safetensors"
	CurveFile = "loss.svg"
)
