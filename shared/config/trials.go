package config

import "regexp"

// Design is the table [design] of a run of KindTrials: how its trials are laid out.
type Design struct {
	// Replications is how often each task is tried under each variant.
	Replications int `toml:"replications" json:"replications"`
	// Order is in which order trials are begun: one of the Order constants of trials.
	Order string `toml:"order" json:"order"`
	// Seed is what a random order and the seeds of the answers are made from.
	Seed int64 `toml:"seed" json:"seed"`
	// MaxConcurrency is how many trials of the run may be in flight; 0: as many as its pool
	// takes.
	MaxConcurrency int `toml:"max_concurrency" json:"max_concurrency,omitempty"`
	// Chain is the path of the member of a task whose equal values form a chain: of each chain
	// one trial of a variant is in flight, and they are begun in their order. "" has no chains.
	Chain string `toml:"chain" json:"chain,omitempty"`
}

// Values of design.order: package design of the core has their rules.
const (
	TrialsByTask      = "task"
	TrialsByVariant   = "variant"
	TrialsInterleaved = "interleaved"
	TrialsRandom      = "random"
)

// Variant is a table [[variant]]: one way of answering the tasks.
type Variant struct {
	Name string `toml:"name" json:"name"`
	// System and Prompt are the messages that ask about a task, with its members as
	// placeholders. Messages of a task that has its own stand in the place of Prompt, which is
	// "" then. System may be "".
	System string `toml:"system" json:"system,omitempty"`
	Prompt string `toml:"prompt" json:"prompt,omitempty"`
	// MaxParallelTrials is how many trials of the variant may be in flight; 0: any number.
	MaxParallelTrials int `toml:"max_parallel_trials" json:"max_parallel_trials,omitempty"`
	// Sampling has the params that differ from those of the run; nil has none.
	Sampling *Sampling `toml:"sampling" json:"sampling,omitempty"`
}

// DefaultPrompt is what a variant without a prompt asks about a task without messages.
const DefaultPrompt = "{prompt}"

// Bounds of a run of trials.
const (
	MaxTrials       = 1_000_000
	maxVariants     = 64
	maxReplications = 1000
)

// DefaultDesign returns one replication in interleaved order.
func DefaultDesign() Design { return Design{Replications: 1, Order: TrialsInterleaved} }

// DesignOf returns the run's [design], with its defaults.
func (r Run) DesignOf() Design { return valueOr(r.Design, DefaultDesign) }

func (d *Design) setDefaults() { *d = DefaultDesign() }

// memberPlace matches a placeholder of a variant's messages: a word in braces. All other braces
// are text, such as those of JSON.
var memberPlace = regexp.MustCompile(`\{([A-Za-z0-9_]+)\}`)

// Members returns the members of a task that the placeholders of a text name, each once, in
// their order.
func Members(text string) (names []string) {
	seen := map[string]bool{}
	for _, m := range memberPlace.FindAllStringSubmatch(text, -1) {
		if name := m[1]; !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}
