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
	// Model is what answers its trials; "" means the run's own model.
	Model string `toml:"model" json:"model,omitempty"`
	// MaxParallelTrials is how many trials of the variant may be in flight; 0: any number.
	MaxParallelTrials int `toml:"max_parallel_trials" json:"max_parallel_trials,omitempty"`
	// Sampling has the params that differ from those of the run; nil has none.
	Sampling *Sampling `toml:"sampling" json:"sampling,omitempty"`

	// Command makes the variant an agent: a program and its arguments, which workers run for
	// each trial in a sandbox; no shell sees them. All that follows belongs to an agent.
	Command []string `toml:"command" json:"command,omitempty"`
	// Artifact is what the agent's folder starts with: a folder of the bucket, which ends in
	// "/", or a .tar in it. Submit pins its content. "" is nothing.
	Artifact string `toml:"artifact" json:"artifact,omitempty"`
	// Env are variables of the agent's environment, beside those of the sandbox.
	Env map[string]string `toml:"env" json:"env,omitempty"`
	// Shows are the members of a task that the agent sees, beside its id, prompt and messages.
	Shows []string `toml:"shows" json:"shows,omitempty"`
	// Trusted lets the agent run on machines that isolate trusted programs alone.
	Trusted bool `toml:"trusted" json:"trusted,omitempty"`
	// Limits bound each of its trials; nil means DefaultAgentLimits.
	Limits *AgentLimits `toml:"limits" json:"limits,omitempty"`
}

// IsAgent reports whether the variant is an agent, and not a prompt.
func (v Variant) IsAgent() bool { return len(v.Command) > 0 }

// AgentLimits are the table [variant.limits]: what one trial of an agent may use. Reaching one
// of them ends the trial, and is no fault.
type AgentLimits struct {
	Seconds   int `toml:"seconds" json:"seconds"`     // from the start of the program
	MemoryMB  int `toml:"memory_mb" json:"memory_mb"` // MiB of all its processes, and of its files in memory
	DiskMB    int `toml:"disk_mb" json:"disk_mb"`     // MiB of its files
	OutputMB  int `toml:"output_mb" json:"output_mb"` // MiB that it writes to its standard output and error
	Files     int `toml:"files" json:"files"`         // files and folders
	Processes int `toml:"processes" json:"processes"` // processes and threads at once
	// Requests are those to the model, Concurrent how many of them at once, and Tokens those of
	// prompts and answers. Dollars count at the prices of the engine. 0 sets no limit.
	Requests   int     `toml:"requests" json:"requests,omitempty"`
	Concurrent int     `toml:"concurrent_requests" json:"concurrent_requests"`
	Tokens     int     `toml:"tokens" json:"tokens,omitempty"`
	Dollars    float64 `toml:"dollars" json:"dollars,omitempty"`
}

// DefaultAgentLimits returns what a small agent needs.
func DefaultAgentLimits() AgentLimits {
	return AgentLimits{Seconds: 600, MemoryMB: 1024, DiskMB: 256, OutputMB: 16, Files: 10_000, Processes: 64,
		Requests: 200, Concurrent: 4, Tokens: 1_000_000}
}

func (l *AgentLimits) setDefaults() { *l = DefaultAgentLimits() }

// LimitsOf returns the limits of the agent's trials, with their defaults.
func (v Variant) LimitsOf() AgentLimits { return valueOr(v.Limits, DefaultAgentLimits) }

// Trials are the settings of a deployment for runs of trials.
type Trials struct {
	// Processes permits variants with a command. Whoever may submit a run may then have
	// workers execute programs.
	Processes bool `toml:"processes"`
	// AtOnce is how many of these a worker runs at once; 0 is as many as its machine has
	// processors and memory for.
	AtOnce int `toml:"at_once"`
}

// DefaultPrompt is what a variant without a prompt asks about a task without messages.
const DefaultPrompt = "{prompt}"

// Bounds of a run of trials.
const (
	MaxTrials       = 1_000_000
	maxVariants     = 64
	maxReplications = 1000

	maxCommand      = 64
	maxEnv          = 64
	maxShows        = 64
	maxAgentSeconds = 24 * 60 * 60
	maxAgentMB      = 1 << 20
	minAgentMemory  = 64 // what a sandbox itself needs
	maxAgentFiles   = 1_000_000
	maxAgentCount   = 10_000 // of processes, and of requests at once
	maxAtOnce       = 1024
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
