package config

// Kinds of algorithm.
const (
	AlgorithmSFT = "sft" // supervised fine-tuning on prompts and answers
	AlgorithmRM  = "rm"  // a reward model from pairs of a better and a worse answer
)

// Values of an algorithm's settings.
const (
	ModelTiny         = "rollout/tiny" // the model that comes with rollout
	SnapshotPrefix    = "snapshot:"    // precedes the snapshot id in a base model's URI
	DatasetJSONL      = "jsonl_path"
	HeadBradleyTerry  = "bradley_terry"
	LossAssistantOnly = "assistant_only" // only the answer's tokens contribute to the loss
	LossFull          = "full"           // the prompt's tokens contribute, too
	PackingOff        = "off"
	PackingOn         = "on"
	OptimizerSGD      = "sgd"
	OptimizerAdamW    = "adamw"
	ScheduleConstant  = "constant"
	ScheduleLinear    = "linear"
	ScheduleCosine    = "cosine"
)

// Algorithm selects what a training does. In a valid Algorithm only the settings
// of its kind are not nil.
type Algorithm struct {
	Kind string `toml:"kind" json:"kind"`
	SFT  *SFT   `toml:"sft" json:"sft,omitempty"`
	RM   *RM    `toml:"rm" json:"rm,omitempty"`
}

// SFT holds the settings of supervised fine-tuning.
type SFT struct {
	BaseModel BaseModel `toml:"base_model" json:"base_model"`
	// Minibatch is the number of rows of one forward and backward pass. Default: 8.
	Minibatch int `toml:"minibatch_size" json:"minibatch_size"`
	// Accumulation is the number of minibatches of one optimizer step. Default: 1.
	Accumulation int       `toml:"gradient_accumulation" json:"gradient_accumulation"`
	Seed         int64     `toml:"seed" json:"seed"` // orders the rows
	LossOn       LossOn    `toml:"loss_on" json:"loss_on"`
	Dataset      Dataset   `toml:"dataset" json:"dataset"`
	Optimizer    Optimizer `toml:"optimizer" json:"optimizer"`
	Budget       Budget    `toml:"budget" json:"budget"`
	Packing      Packing   `toml:"packing" json:"packing"`
}

// RM holds the settings of reward-model training.
type RM struct {
	BaseModel BaseModel `toml:"base_model" json:"base_model"`
	Head      Head      `toml:"head" json:"head"`
	// Minibatch is the number of pairs of one forward and backward pass. Default: 8.
	Minibatch int `toml:"minibatch_size" json:"minibatch_size"`
	// Accumulation is the number of minibatches of one optimizer step. Default: 1.
	Accumulation int   `toml:"gradient_accumulation" json:"gradient_accumulation"`
	Seed         int64 `toml:"seed" json:"seed"` // orders the pairs and initializes the head
	// MaxSeqLen bounds a prompt with its answer, in tokens. 0 is the model's context.
	MaxSeqLen int       `toml:"max_seq_len" json:"max_seq_len"`
	Dataset   Dataset   `toml:"dataset" json:"dataset"`
	Optimizer Optimizer `toml:"optimizer" json:"optimizer"`
	Budget    Budget    `toml:"budget" json:"budget"`
}

// BaseModel names the model that a training begins with: ModelTiny, or
// SnapshotPrefix and the id of a snapshot that rollout trained.
type BaseModel struct {
	URI string `toml:"uri" json:"uri"`
}

// LossOn selects the tokens of a row that contribute to the loss.
type LossOn struct {
	Kind string `toml:"kind" json:"kind"` // LossAssistantOnly or LossFull; default: LossAssistantOnly
}

// Head selects the head and loss of a reward model.
type Head struct {
	Kind string `toml:"kind" json:"kind"` // HeadBradleyTerry
}

// Dataset names the rows of a training. In the config of a run the path stays
// empty, because the dataset is the run's input.
type Dataset struct {
	Kind string `toml:"kind" json:"kind"` // DatasetJSONL
	Path string `toml:"path" json:"path,omitempty"`
}

// Optimizer holds the settings of the optimizer. Only AdamW uses Betas and Eps.
type Optimizer struct {
	Kind string  `toml:"kind" json:"kind"`
	LR   float64 `toml:"lr" json:"lr"`
	// WeightDecay applies to weights and not to gains. AdamW decouples it; SGD
	// adds it to the gradient.
	WeightDecay float64   `toml:"weight_decay" json:"weight_decay"`
	Betas       []float64 `toml:"betas" json:"betas"`               // two numbers; default: 0.9 and 0.999
	Eps         float64   `toml:"eps" json:"eps"`                   // default: 1e-8
	WarmupSteps int       `toml:"warmup_steps" json:"warmup_steps"` // LR rises linearly over these steps
	Schedule    string    `toml:"schedule" json:"schedule"`         // of LR after the warm-up; default: ScheduleConstant
	MaxGradNorm float64   `toml:"max_grad_norm" json:"max_grad_norm"`
}

// Budget says when a training ends.
type Budget struct {
	MaxSteps int `toml:"max_steps" json:"max_steps"`
}

// Packing says whether several short rows of a minibatch share one sequence. A
// packed row attends only to itself.
type Packing struct {
	Kind      string `toml:"kind" json:"kind"`               // PackingOff or PackingOn; default: PackingOff
	MaxSeqLen int    `toml:"max_seq_len" json:"max_seq_len"` // in tokens; 0 is the model's context
}

// Snapshots says how often a training saves a snapshot. It always saves one when
// it ends.
type Snapshots struct {
	Every    int `toml:"every_steps" json:"every_steps"` // steps between snapshots; 0 saves only the last one
	KeepLast int `toml:"keep_last" json:"keep_last"`     // number of snapshots kept; older ones are removed
}

// DefaultSnapshots returns a snapshot every 100 steps, of which the last 3 are
// kept.
func DefaultSnapshots() Snapshots { return Snapshots{Every: 100, KeepLast: 3} }

// setDefaults runs before the binder writes a table over s.
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
	return Optimizer{
		Kind:        OptimizerAdamW,
		Betas:       []float64{0.9, 0.999},
		Eps:         1e-8,
		Schedule:    ScheduleConstant,
		MaxGradNorm: 1,
	}
}

// DefaultSFT returns the default settings. They are valid once the caller sets
// the base model, the dataset, the learning rate and the budget.
func DefaultSFT() *SFT {
	s := &SFT{}
	s.setDefaults()
	return s
}

// DefaultRM returns the default settings. They are valid once the caller sets
// the base model, the dataset, the learning rate and the budget.
func DefaultRM() *RM {
	r := &RM{}
	r.setDefaults()
	return r
}

// CommonSettings holds the settings that SFT and RM share.
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

// Common returns the settings that SFT and RM share. They are zero values if the
// settings of the algorithm's kind are missing.
func (a Algorithm) Common() CommonSettings {
	switch {
	case a.Kind == AlgorithmSFT && a.SFT != nil:
		s := a.SFT
		return CommonSettings{
			s.BaseModel, s.Minibatch, s.Accumulation, s.Seed, s.Packing.MaxSeqLen, s.Dataset, s.Optimizer, s.Budget,
		}
	case a.Kind == AlgorithmRM && a.RM != nil:
		r := a.RM
		return CommonSettings{
			r.BaseModel, r.Minibatch, r.Accumulation, r.Seed, r.MaxSeqLen, r.Dataset, r.Optimizer, r.Budget,
		}
	}
	return CommonSettings{}
}

// shorthands maps each table that a file may write as a string to the key that
// the string sets.
var shorthands = map[string]string{"base_model": "uri", "head": "kind", "loss_on": "kind", "packing": "kind"}

// normalizeAlgorithm replaces the shorthands of the [algorithm] table x: head =
// "a" becomes head = { kind = "a" }, dataset.type becomes dataset.kind, and a
// missing kind becomes that of the only table. It leaves values of a wrong type
// to the binder, which reports them.
func normalizeAlgorithm(c *checker, x any, at string) {
	algorithm, ok := x.(map[string]any)
	if !ok {
		return
	}
	var kinds []string
	for _, kind := range []string{AlgorithmSFT, AlgorithmRM} {
		if table, ok := algorithm[kind].(map[string]any); ok {
			kinds = append(kinds, kind)
			normalizeSettings(c, table, at+"."+kind)
		}
	}
	if _, ok := algorithm["kind"]; !ok && len(kinds) == 1 {
		algorithm["kind"] = kinds[0]
	}
}

func normalizeSettings(c *checker, table map[string]any, at string) {
	for name, key := range shorthands {
		if text, ok := table[name].(string); ok {
			table[name] = map[string]any{key: text}
		}
	}
	dataset, ok := table["dataset"].(map[string]any)
	if !ok {
		return
	}
	kind, named := dataset["type"]
	if !named {
		return
	}
	if _, both := dataset["kind"]; both {
		c.add(at+".dataset.type", "is another name for kind, which is also set: remove one of them")
	}
	dataset["kind"] = kind
	delete(dataset, "type")
}
