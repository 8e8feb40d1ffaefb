package config

// Kinds of selection: values of selection.policy. Package selection of the core has
// their rules.
const (
	SelectVote  = "vote_strength" // a member with the answer that most members gave
	SelectLabel = "label_match"   // a member whose answer is the ticket's label, else as SelectVote
	SelectScore = "best_score"    // the member with the highest score
)

// Rollout is the table [rollout] of a run of KindRollout: how tickets become prompts.
type Rollout struct {
	// Seed is what the order of the tickets and the seeds of their answers are made from.
	Seed int64 `toml:"seed" json:"seed"`
	// Epochs is how many times each ticket is answered, in another order each time. With
	// more than one there must be a Reflection: without it the answers would be the same.
	Epochs int `toml:"epochs" json:"epochs,omitempty"`
	// System and Prompt are the messages that ask about a ticket, with TicketPlaces.
	// Messages of a ticket that has its own stand in the place of Prompt. System may be "".
	System string `toml:"system" json:"system,omitempty"`
	Prompt string `toml:"prompt" json:"prompt,omitempty"`
}

// The names in the placeholders of Rollout's messages.
const (
	PlaceGuidance = "guidance" // the guidance of the ticket's mission
	PlaceContent  = "content"  // of the ticket
	PlaceMission  = "mission"  // its name
)

// TicketPlaces lists the names in placeholders of Rollout's messages.
func TicketPlaces() []string { return []string{PlaceGuidance, PlaceContent, PlaceMission} }

// Mission is a table [[mission]]: what tickets of one mission are judged by.
type Mission struct {
	Name string `toml:"name" json:"name"`
	// Scaffold is the part of the guidance that stays as it is, and Entries are its
	// numbered part.
	Scaffold string   `toml:"scaffold" json:"scaffold,omitempty"`
	Entries  []string `toml:"entries" json:"entries,omitempty"`
}

// Decode is a table [[decode]]: one way of sampling an answer. Each ticket is answered
// Samples times in each way. A nil param is that of [sampling].
type Decode struct {
	Temperature *float64 `toml:"temperature" json:"temperature,omitempty"`
	TopP        *float64 `toml:"top_p" json:"top_p,omitempty"`
	MaxTokens   *int     `toml:"max_tokens" json:"max_tokens,omitempty"`
	Stop        []string `toml:"stop" json:"stop,omitempty"`
	// Seed is the seed of the first sample; each further one has the next number. Nil
	// derives a seed from ticket, decode and sample.
	Seed    *int64 `toml:"seed" json:"seed,omitempty"`
	Samples int    `toml:"samples" json:"samples,omitempty"` // 0 means 1
}

// Count returns how many answers of a ticket are sampled in this way.
func (d Decode) Count() int { return max(1, d.Samples) }

// Answer is the table [answer]: how the verdict is read from an answer's text.
type Answer struct {
	// Pattern is a regular expression (RE2) for the verdict: its first group, or its whole
	// match, the last one in the text. "" takes the whole text.
	Pattern string `toml:"pattern" json:"pattern,omitempty"`
	// Schema is the JSON schema of an answer that is JSON, and Member the path of the
	// member with the verdict.
	Schema string `toml:"schema" json:"schema,omitempty"`
	Member string `toml:"member" json:"member,omitempty"`
	// Verdicts are the only ones that count; none means any. They, and labels, are
	// compared without regard to upper and lower case if IgnoreCase.
	Verdicts   []string `toml:"verdicts" json:"verdicts,omitempty"`
	IgnoreCase bool     `toml:"ignore_case" json:"ignore_case,omitempty"`
}

// Runner is the table [runner]: what is answered together.
type Runner struct {
	// RolloutBatchSize is how many tickets a global batch has, whatever the number of
	// workers. All of them see the same guidance.
	RolloutBatchSize int `toml:"rollout_batch_size" json:"rollout_batch_size"`
	// Parallelism is how many shards a batch is cut into; 0 gives shards of about 256
	// answers.
	Parallelism int `toml:"parallelism" json:"parallelism,omitempty"`
	// MaxReplacements is how many further tickets of the epoch a batch may take, under the
	// same guidance, in the place of tickets that teach nothing; 0 takes none.
	MaxReplacements int `toml:"max_replacements" json:"max_replacements,omitempty"`
	// OnInterrupt says what becomes of the answers of a batch of which a worker has handed
	// back or lost a part: one of the Interrupt constants; "" is InterruptKeep.
	OnInterrupt string `toml:"on_interrupt" json:"on_interrupt,omitempty"`
}

// Values of runner.on_interrupt.
const (
	InterruptKeep    = "keep"          // they stay, and others ask the rest, with the same seeds
	InterruptRestart = "restart_batch" // the whole batch is asked anew
)

// Selection is the table [selection]: how one answer of each ticket is chosen.
type Selection struct {
	Policy string `toml:"policy" json:"policy"`
	// ReviewBelow is the share of equal answers below which a person shall look.
	ReviewBelow float64 `toml:"review_below" json:"review_below"`
}

// Bounds of a rollout.
const (
	MaxTickets    = 1_000_000
	maxMissions   = 64
	maxDecodes    = 16
	MaxMembers    = 256   // answers of one ticket
	maxBatchItems = 65536 // answers of a global batch
	maxEntries    = 200
	maxPromptText = 16 << 10 // bytes of each message; they are in every manifest
	maxVerdicts   = 100
)

// DefaultRollout returns seed 0, one epoch and a prompt of guidance and content.
func DefaultRollout() Rollout { return Rollout{Epochs: 1, Prompt: "{guidance}\n\n{content}"} }

// DefaultRunner returns batches of 64 tickets.
func DefaultRunner() Runner { return Runner{RolloutBatchSize: 64} }

// DefaultSelection returns the vote, with a look of a person below half.
func DefaultSelection() Selection { return Selection{Policy: SelectVote, ReviewBelow: 0.5} }

// RolloutOf returns the run's [rollout], with its defaults.
func (r Run) RolloutOf() Rollout {
	out := valueOr(r.Rollout, DefaultRollout)
	out.Epochs = max(1, out.Epochs)
	return out
}

// RunnerOf returns the run's [runner], with its defaults.
func (r Run) RunnerOf() Runner { return valueOr(r.Runner, DefaultRunner) }

// SelectionOf returns the run's [selection], with its defaults.
func (r Run) SelectionOf() Selection { return valueOr(r.Selection, DefaultSelection) }

// AnswerOf returns the run's [answer], with its defaults.
func (r Run) AnswerOf() Answer { return valueOr(r.Answer, func() Answer { return Answer{} }) }

// DecodesOf returns the run's [[decode]]: without one, a single answer of each ticket.
func (r Run) DecodesOf() []Decode {
	if len(r.Decodes) == 0 {
		return []Decode{{}}
	}
	return r.Decodes
}

// Members returns how many answers each ticket of a rollout gets.
func (r Run) Members() (n int) {
	for _, d := range r.DecodesOf() {
		n += d.Count()
	}
	return n
}

func (r *Rollout) setDefaults()   { *r = DefaultRollout() }
func (r *Runner) setDefaults()    { *r = DefaultRunner() }
func (s *Selection) setDefaults() { *s = DefaultSelection() }

func valueOr[T any](v *T, or func() T) T {
	if v == nil {
		return or()
	}
	return *v
}
