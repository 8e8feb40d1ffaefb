package config

import (
	"encoding/json"
	"time"
)

// SchemaVersion is the version of every config file.
const SchemaVersion = 1

// Run is the config of one run. It comes from the first of these that exists:
// prompts/x.toml beside prompts/x.jsonl, prompts/rollout.toml, the deployment's
// [defaults]. The run's manifest holds its JSON form.
type Run struct {
	SchemaVersion int      `toml:"schema_version" json:"schema_version"`
	Kind          string   `toml:"kind" json:"kind"` // KindBatch, KindRollout, KindTrain or KindTrials
	Name          string   `toml:"name" json:"name,omitempty"`
	Model         Model    `toml:"model" json:"model"`
	Sampling      Sampling `toml:"sampling" json:"sampling"`
	// Request is nil if the file has no such table.
	Request *Request `toml:"request" json:"request,omitempty"`
	Input   Input    `toml:"input" json:"input"`
	Shard   Shard    `toml:"shard" json:"shard"`
	Limits  Limits   `toml:"limits" json:"limits"`
	// Scheduling is the table [run].
	Scheduling Scheduling `toml:"run" json:"run,omitzero"`
	Dedupe     Dedupe     `toml:"dedupe" json:"dedupe,omitzero"`
	Grades     []Grade    `toml:"grade" json:"grade,omitempty"`
	Facts      Facts      `toml:"facts" json:"facts,omitzero"`
	// Rollout to Gate are nil unless Kind is KindRollout; nil means the defaults.
	Rollout   *Rollout   `toml:"rollout" json:"rollout,omitempty"`
	Missions  []Mission  `toml:"mission" json:"mission,omitempty"`
	Decodes   []Decode   `toml:"decode" json:"decode,omitempty"`
	Answer    *Answer    `toml:"answer" json:"answer,omitempty"`
	Runner    *Runner    `toml:"runner" json:"runner,omitempty"`
	Selection *Selection `toml:"selection" json:"selection,omitempty"`
	// Reflection improves the guidance; nil leaves it as it is. Gate is what a better
	// guidance must show; nil means the defaults.
	Reflection *Reflection `toml:"reflection" json:"reflection,omitempty"`
	Gate       *Gate       `toml:"gate" json:"gate,omitempty"`
	// Design, Variants and Pruning are nil unless Kind is KindTrials; nil means the defaults.
	Design   *Design   `toml:"design" json:"design,omitempty"`
	Variants []Variant `toml:"variant" json:"variant,omitempty"`
	Pruning  *Pruning  `toml:"pruning" json:"pruning,omitempty"`
	// Algorithm and Snapshot are nil unless Kind is KindTrain.
	Algorithm *Algorithm `toml:"algorithm" json:"algorithm,omitempty"`
	Snapshot  *Snapshots `toml:"snapshot" json:"snapshot,omitempty"` // nil means DefaultSnapshots
}

// Snapshots returns the snapshot settings of a training, with their defaults.
func (r Run) Snapshots() Snapshots {
	if r.Snapshot == nil {
		return DefaultSnapshots()
	}
	return *r.Snapshot
}

// normalize replaces shorthands in the file's tree before it is bound.
func (*Run) normalize(c *checker, tree map[string]any) {
	normalizeAlgorithm(c, tree["algorithm"], "algorithm")
	normalizeRequest(c, tree["request"], "request")
	normalizePriority(c, tree["run"], "run")
}

// Dedupe says whether equal requests of several lines are sent once. The first
// line sends the request, and the others get copies of its answer.
type Dedupe struct {
	Enabled bool `toml:"enabled" json:"enabled,omitempty"`
	// Sampled includes requests that a server may answer differently each
	// time: those with a temperature above 0, or with several answers.
	Sampled bool `toml:"sampled" json:"sampled,omitempty"`
}

// Model names the model of a run. With an empty URI a run uses the model of the
// deployment's only pool.
type Model struct {
	URI       string `toml:"uri" json:"uri,omitempty"`
	Revision  string `toml:"revision" json:"revision,omitempty"`
	Tokenizer string `toml:"tokenizer" json:"tokenizer,omitempty"`
}

// Sampling holds the default sampling params of a run's items; a prompt line may
// override each. The server chooses the value of a nil field. The order of the
// fields is part of every item id: see identity.ItemSchema.
type Sampling struct {
	Temperature       *float64 `toml:"temperature" json:"temperature,omitempty"`
	TopP              *float64 `toml:"top_p" json:"top_p,omitempty"`
	TopK              *int     `toml:"top_k" json:"top_k,omitempty"` // -1 disables it
	MinP              *float64 `toml:"min_p" json:"min_p,omitempty"`
	RepetitionPenalty *float64 `toml:"repetition_penalty" json:"repetition_penalty,omitempty"`
	PresencePenalty   *float64 `toml:"presence_penalty" json:"presence_penalty,omitempty"`
	FrequencyPenalty  *float64 `toml:"frequency_penalty" json:"frequency_penalty,omitempty"`
	MaxTokens         *int     `toml:"max_tokens" json:"max_tokens,omitempty"`
	Seed              *int64   `toml:"seed" json:"seed,omitempty"`
	Stop              []string `toml:"stop" json:"stop,omitempty"`
	N                 *int     `toml:"n" json:"n,omitempty"`
	Logprobs          *int     `toml:"logprobs" json:"logprobs,omitempty"` // number of alternatives for each token
	Stream            bool     `toml:"stream" json:"-"`                    // Check refuses true
}

// Canonical returns the params as JSON in field order. Item ids are computed from
// these bytes, and output rows contain them.
func (s Sampling) Canonical() []byte {
	b, err := json.Marshal(s)
	if err != nil { // NaN or an infinity, which Check refuses
		return []byte("{}")
	}
	return b
}

// Input says how the input is read.
type Input struct {
	Dialect     string `toml:"dialect" json:"dialect,omitempty"`           // "" detects the dialect
	MaxUnpacked int64  `toml:"max_unpacked" json:"max_unpacked,omitempty"` // decompressed bytes of .gz and .zst
}

// Shard says how the input is cut into shards, and in which order a worker sends
// the items of a shard.
type Shard struct {
	// Items is the maximum number of items of a shard; 0 means 256, and up to 1,024 in a
	// large input: see shardtable.CutObject.
	Items int    `toml:"items" json:"items"`
	Order string `toml:"order" json:"order,omitempty"` // OrderInput or OrderPrefix; "" means OrderInput
}

// Orders in which a worker sends the items of a shard. The output is in input
// order with both.
const (
	OrderInput  = "input"
	OrderPrefix = "prefix" // groups prompts with equal beginnings, for servers with a prefix cache
)

// Limits bounds a run.
type Limits struct {
	Deadline Duration `toml:"deadline" json:"deadline,omitempty"` // from submission; 0 disables it
	Grace    Duration `toml:"grace" json:"grace,omitempty"`       // for requests in flight at pause and end
	Tokens   int64    `toml:"tokens" json:"tokens,omitempty"`     // token budget; 0 disables it
	// Dollars is a budget of what the run's bill counts, in US dollars; 0 disables it.
	Dollars float64 `toml:"dollars" json:"dollars,omitempty"`
	// Failures is the number of engine failures of one item after which the item
	// fails. Default: 3.
	Failures int  `toml:"failures" json:"failures,omitempty"`
	FailFast bool `toml:"fail_fast" json:"fail_fast,omitempty"` // the first failed item or lost worker ends the run
	// FailedShardsInARow is the number of consecutive shards without an answered
	// item after which the run pauses; 0 disables it.
	FailedShardsInARow int `toml:"failed_shards_in_a_row" json:"failed_shards_in_a_row,omitempty"`
	// FailedShare is the share of failed items beyond which the run pauses, once 100
	// items have an outcome; 0 disables it.
	FailedShare float64 `toml:"failed_share" json:"failed_share,omitempty"`
}

// Duration is a time.Duration that configs write as text, such as "10s" or "1h30m".
type Duration time.Duration

// Std returns d as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// MarshalText returns the text of time.Duration.String, such as "1h30m0s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText parses the format of time.ParseDuration.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}
