package config

// Reflection is the table [reflection]: how guidance is improved.
type Reflection struct {
	// BatchSize is how many tickets that teach something a reflection looks at, of one
	// mission, whatever the number of workers.
	BatchSize int `toml:"batch_size" json:"batch_size"`
	// Model answers what reflection asks; "" means the run's own.
	Model    string    `toml:"model" json:"model,omitempty"`
	Sampling *Sampling `toml:"sampling" json:"sampling,omitempty"`
	Request  *Request  `toml:"request" json:"request,omitempty"`
	// Candidates is how many plans are made and compared at once.
	Candidates int `toml:"candidates" json:"candidates"`
	// Pareto is how many guidances of a mission may be kept that are each the best for some
	// tickets of the gate, for reflections to begin with; 0 is off.
	Pareto int `toml:"pareto" json:"pareto,omitempty"`
	// Bounds of the guidance of a mission, and of a plan.
	MaxEntries    int `toml:"max_entries" json:"max_entries"`
	MaxEntryBytes int `toml:"max_entry_bytes" json:"max_entry_bytes"`
	MaxTokens     int `toml:"max_tokens" json:"max_tokens"`
	MaxOperations int `toml:"max_operations" json:"max_operations"`
	// StopAfter is how many reflections may fail in a row: then the run ends.
	StopAfter int `toml:"stop_after" json:"stop_after"`
}

// Gate is the table [gate]: what a candidate must show before it becomes the guidance.
type Gate struct {
	// Off takes every plan that is not refused.
	Off bool `toml:"off" json:"off,omitempty"`
	// Share is the part of a mission's tickets with a known outcome that is set aside for
	// comparisons, one half for the gate and one for its confirmation. HoldoutShare is the
	// part that measures accepted guidance for the record.
	Share        float64 `toml:"share" json:"share"`
	HoldoutShare float64 `toml:"holdout_share" json:"holdout_share"`
	// Tickets is how many tickets a comparison takes, at most.
	Tickets int `toml:"tickets" json:"tickets"`
	// Alpha to MaxBroken are those of the rule in package gate of the core.
	Alpha      float64 `toml:"alpha" json:"alpha"`
	Resamples  int     `toml:"resamples" json:"resamples"`
	MinTickets int     `toml:"min_tickets" json:"min_tickets"`
	MinGain    float64 `toml:"min_gain" json:"min_gain"`
	MaxBroken  float64 `toml:"max_broken" json:"max_broken"`
}

// Bounds of reflection and gate.
const (
	maxReflectionBatch = 32
	maxCandidates      = 8
	maxPareto          = 32
	maxPlanOperations  = 32
	maxGuidanceTokens  = 32768
	maxGateTickets     = 2000
	maxEpochs          = 100
	maxAside           = 0.6 // of a mission's tickets
)

// DefaultReflection returns reflections on 16 tickets with one candidate.
func DefaultReflection() Reflection {
	return Reflection{BatchSize: 16, Candidates: 1, MaxEntries: 40, MaxEntryBytes: 600, MaxTokens: 2000, MaxOperations: 8,
		StopAfter: 5}
}

// DefaultGate returns a gate of 100 tickets out of 40 % of those with a known outcome, at
// an alpha of 0.05.
func DefaultGate() Gate {
	return Gate{Share: 0.4, HoldoutShare: 0.1, Tickets: 100, Alpha: 0.05, Resamples: 2000, MinTickets: 20, MaxBroken: 0.1}
}

func (r *Reflection) setDefaults() { *r = DefaultReflection() }
func (g *Gate) setDefaults()       { *g = DefaultGate() }

// GateOf returns the run's [gate], with its defaults.
func (r Run) GateOf() Gate { return valueOr(r.Gate, DefaultGate) }

// Gated reports whether candidates are compared before they become the guidance.
func (r Run) Gated() bool { return r.Reflection != nil && !r.GateOf().Off }

// ReflectionSampling returns the sampling params of what reflection asks.
func (r Reflection) ReflectionSampling() Sampling {
	var s Sampling
	if r.Sampling != nil {
		s = *r.Sampling
	}
	return s
}
