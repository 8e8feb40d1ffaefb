package config

// Kinds of algorithm.
const (
	AlgorithmSFT = "sft" // supervised fine-tuning on prompts and answers
	AlgorithmRM  = "rm"  // a reward model from pairs of a better and a worse answer
)

// Choices of an algorithm's settings.
const (
	ModelTiny         = "rollout/tiny" // the model that comes with rollout
	SnapshotPrefix    = "snapshot:"    // before a snapshot's id, as a base model
	DatasetJSONL      = "jsonl_path"
	HeadBradleyTerry  = "bradley_terry"
	LossAssistantOnly = "assistant_only" // only tokens of the answer count
	LossFull          = "full"           // tokens of the prompt count, too
	PackingOff        = "off"
	PackingOn         = "on"
	OptimizerSGD      = "sgd"
	OptimizerAdamW    = "adamw"
	ScheduleConstant  = "constant"
	ScheduleLinear    = "linear"
	ScheduleCosine    = "cosine"
)

// Algorithm is what a training does: exactly the settings of its kind are set.
type Algorithm struct {
	Kind string `toml:"kind" json:"kind"`
	SFT  *SFT   `toml:"sft" json:"sft,omitempty"`
	RM   *RM    `toml:"rm" json:"rm,omitempty"`
}

// SFT holds the settings of supervised fine-tuning.
type SFT struct {
	BaseModel    BaseModel `toml:"base_model" json:"base_model"`
	Minibatch    int       `toml:"minibatch_size" json:"minibatch_size"`               // rows of one forward and backward; 8
	Accumulation int       `toml:"gradient_accumulation" json:"gradient_accumulation"` // minibatches a step; 1
	Seed         int64     `toml:"seed" json:"seed"`                                   // of the order of the rows
	LossOn       LossOn    `toml:"loss_on" json:"loss_on"`
	Dataset      Dataset   `toml:"dataset" json:"dataset"`
	Optimizer    Optimizer `toml:"optimizer" json:"optimizer"`
	Budget       Budget    `toml:"budget" json:"budget"`
	Packing      Packing   `toml:"packing" json:"packing"`
}

// RM holds the settings of reward-model training.
type RM struct {
	BaseModel    BaseModel `toml:"base_model" json:"base_model"`
	Head         Head      `toml:"head" json:"head"`
	Minibatch    int       `toml:"minibatch_size" json:"minibatch_size"`               // pairs of one forward and backward; 8
	Accumulation int       `toml:"gradient_accumulation" json:"gradient_accumulation"` // minibatches a step; 1
	Seed         int64     `toml:"seed" json:"seed"`                                   // of the order of the pairs, and of the head
	MaxSeqLen    int       `toml:"max_seq_len" json:"max_seq_len"`                     // tokens of a prompt with an answer; 0 is the model's context
	Dataset      Dataset   `toml:"dataset" json:"dataset"`
	Optimizer    Optimizer `toml:"optimizer" json:"optimizer"`
	Budget       Budget    `toml:"budget" json:"budget"`
}

// BaseModel names the model that a training begins with: ModelTiny, or
// SnapshotPrefix and the id of a snapshot of one of our own trainings.
type BaseModel struct {
	URI string `toml:"uri" json:"uri"`
}

// LossOn says which tokens of a row count.
type LossOn struct {
	Kind string `toml:"kind" json:"kind"` // LossAssistantOnly if unset, or LossFull
}

// Head is what a reward model is trained with.
type Head struct {
	Kind string `toml:"kind" json:"kind"` // HeadBradleyTerry
}

// Dataset names the rows. A run's dataset is its input: it has no path.
type Dataset struct {
	Kind string `toml:"kind" json:"kind"` // DatasetJSONL
	Path string `toml:"path" json:"path,omitempty"`
}

// Optimizer says how gradients change parameters. Betas and eps are AdamW's.
type Optimizer struct {
	Kind        string    `toml:"kind" json:"kind"`
	LR          float64   `toml:"lr" json:"lr"`
	WeightDecay float64   `toml:"weight_decay" json:"weight_decay"` // of weights, not of gains; AdamW: decoupled, SGD: added to the gradient
	Betas       []float64 `toml:"betas" json:"betas"`               // two; 0.9 and 0.999
	Eps         float64   `toml:"eps" json:"eps"`                   // 1e-8
	WarmupSteps int       `toml:"warmup_steps" json:"warmup_steps"` // lr rises linearly over these steps
	Schedule    string    `toml:"schedule" json:"schedule"`         // of lr after the warm-up; ScheduleConstant if unset
	MaxGradNorm float64   `toml:"max_grad_norm" json:"max_grad_norm"`
}

// Budget ends a training.
type Budget struct {
	MaxSteps int `toml:"max_steps" json:"max_steps"`
}

// Packing says whether several short rows of a minibatch share a sequence, of
// which each still sees itself alone.
type Packing struct {
	Kind      string `toml:"kind" json:"kind"`               // PackingOff if unset, or PackingOn
	MaxSeqLen int    `toml:"max_seq_len" json:"max_seq_len"` // tokens; 0 is the model's context
}

// Snapshots says how often a training's state is kept, beside its end.
type Snapshots struct {
	Every    int `toml:"every_steps" json:"every_steps"` // 0 is only at the end
	KeepLast int `toml:"keep_last" json:"keep_last"`     // older ones of the training are removed
}

// DefaultSnapshots returns one every 100 steps, of which the last 3 are kept.
func DefaultSnapshots() Snapshots { return Snapshots{Every: 100, KeepLast: 3} }

// setDefaults is called before a table is bound; see binder.
func (s *Snapshots) setDefaults() { *s = DefaultSnapshots() }

const defaultMinibatch = 8

func (s *SFT) setDefaults() {
	*s = SFT{Minibatch: defaultMinibatch, Accumulation: 1, LossOn: LossOn{LossAssistantOnly},
		Dataset: Dataset{Kind: DatasetJSONL}, Optimizer: defaultOptimizer(), Packing: Packing{Kind: PackingOff}}
}

func (r *RM) setDefaults() {
	*r = RM{Minibatch: defaultMinibatch, Accumulation: 1, Head: Head{HeadBradleyTerry},
		Dataset: Dataset{Kind: DatasetJSONL}, Optimizer: defaultOptimizer()}
}

func defaultOptimizer() Optimizer {
	return Optimizer{Kind: OptimizerAdamW, Betas: []float64{0.9, 0.999}, Eps: 1e-8, Schedule: ScheduleConstant, MaxGradNorm: 1}
}

// DefaultSFT returns settings that lack a base model, a dataset, a learning
// rate and a budget.
func DefaultSFT() *SFT {
	s := &SFT{}
	s.setDefaults()
	return s
}

// DefaultRM returns settings that lack what DefaultSFT's do.
func DefaultRM() *RM {
	r := &RM{}
	r.setDefaults()
	return r
}

// CommonSettings is what the settings of every kind have.
type CommonSettings struct {
	BaseModel    BaseModel
	Minibatch    int
	Accumulation int
	Seed         int64
	MaxSeqLen    int
	Dataset      Dataset
	Optimizer    Optimizer
	Budget       Budget
}

// Common returns the settings that do not depend on the kind; zero values if
// the kind's settings are missing.
func (a Algorithm) Common() CommonSettings {
	switch {
	case a.Kind == AlgorithmSFT && a.SFT != nil:
		s := a.SFT
		return CommonSettings{s.BaseModel, s.Minibatch, s.Accumulation, s.Seed, s.Packing.MaxSeqLen, s.Dataset, s.Optimizer, s.Budget}
	case a.Kind == AlgorithmRM && a.RM != nil:
		r := a.RM
		return CommonSettings{r.BaseModel, r.Minibatch, r.Accumulation, r.Seed, r.MaxSeqLen, r.Dataset, r.Optimizer, r.Budget}
	}
	return CommonSettings{}
}
