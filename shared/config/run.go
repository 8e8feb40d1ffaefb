package config

import (
	"encoding/json"
	"time"
)

// SchemaVersion is the version of every config file.
const SchemaVersion = 1

// Run is the config of one run: prompts/x.toml beside prompts/x.jsonl, else
// prompts/rollout.toml, else the deployment's [defaults]. The JSON form is
// kept in the run's manifest.
type Run struct {
	SchemaVersion int      `toml:"schema_version" json:"schema_version"`
	Kind          string   `toml:"kind" json:"kind"` // KindBatch or KindTrain
	Name          string   `toml:"name" json:"name,omitempty"`
	Model         Model    `toml:"model" json:"model"`
	Sampling      Sampling `toml:"sampling" json:"sampling"`
	Input         Input    `toml:"input" json:"input"`
	Shard         Shard    `toml:"shard" json:"shard"`
	Limits        Limits   `toml:"limits" json:"limits"`
	Dedupe        Dedupe   `toml:"dedupe" json:"dedupe,omitzero"`
	// Of a training alone.
	Algorithm *Algorithm `toml:"algorithm" json:"algorithm,omitempty"`
	Snapshot  *Snapshots `toml:"snapshot" json:"snapshot,omitempty"` // nil is DefaultSnapshots
}

// Snapshots says how often a training's state is kept.
func (r Run) Snapshots() Snapshots {
	if r.Snapshot == nil {
		return DefaultSnapshots()
	}
	return *r.Snapshot
}

// normalize gives the file's tree its one form.
func (*Run) normalize(c *checker, tree map[string]any) {
	normalizeAlgorithm(c, tree["algorithm"], "algorithm")
}

// Dedupe says whether a request that several lines make is asked once. It is
// then its first line's, and the others get copies of that line's answer.
type Dedupe struct {
	Enabled bool `toml:"enabled" json:"enabled,omitempty"`
	// Sampled includes requests that a server may answer differently each
	// time: with a temperature that is not 0, or for several answers.
	Sampled bool `toml:"sampled" json:"sampled,omitempty"`
}

// Model names the model. An empty URI is the deployment's only pool's model.
type Model struct {
	URI       string `toml:"uri" json:"uri,omitempty"`
	Revision  string `toml:"revision" json:"revision,omitempty"`
	Tokenizer string `toml:"tokenizer" json:"tokenizer,omitempty"`
}

// Sampling holds the sampling params of every item that does not name its
// own. Nil fields are left to the server. The order of the fields is part of
// every item id: see identity.ItemSchema.
type Sampling struct {
	Temperature       *float64 `toml:"temperature" json:"temperature,omitempty"`
	TopP              *float64 `toml:"top_p" json:"top_p,omitempty"`
	TopK              *int     `toml:"top_k" json:"top_k,omitempty"` // -1 is off
	MinP              *float64 `toml:"min_p" json:"min_p,omitempty"`
	RepetitionPenalty *float64 `toml:"repetition_penalty" json:"repetition_penalty,omitempty"`
	PresencePenalty   *float64 `toml:"presence_penalty" json:"presence_penalty,omitempty"`
	FrequencyPenalty  *float64 `toml:"frequency_penalty" json:"frequency_penalty,omitempty"`
	MaxTokens         *int     `toml:"max_tokens" json:"max_tokens,omitempty"`
	Seed              *int64   `toml:"seed" json:"seed,omitempty"`
	Stop              []string `toml:"stop" json:"stop,omitempty"`
	N                 *int     `toml:"n" json:"n,omitempty"`
	Logprobs          *int     `toml:"logprobs" json:"logprobs,omitempty"` // alternatives a token
	Stream            bool     `toml:"stream" json:"-"`                    // refused when true
}

// Canonical returns the params as JSON in field order: the bytes that item
// ids are made of and that output rows show.
func (s Sampling) Canonical() []byte {
	b, err := json.Marshal(s)
	if err != nil { // NaN and infinities are refused by Check
		return []byte("{}")
	}
	return b
}

// Input says how the input is read.
type Input struct {
	Dialect     string `toml:"dialect" json:"dialect,omitempty"`           // "" is detected
	MaxUnpacked int64  `toml:"max_unpacked" json:"max_unpacked,omitempty"` // bytes of .gz and .zst, unpacked
}

// Shard says how the input is cut, and in which order a shard is asked.
type Shard struct {
	Items int    `toml:"items" json:"items"`           // at most so many items a shard; 256 if unset
	Order string `toml:"order" json:"order,omitempty"` // OrderInput or OrderPrefix; "" is OrderInput
}

// Orders in which a worker asks the items of a shard. Output is in input order
// with either.
const (
	OrderInput  = "input"
	OrderPrefix = "prefix" // by what prompts begin with, for servers that cache prefixes
)

// Limits bounds a run.
type Limits struct {
	Deadline Duration `toml:"deadline" json:"deadline,omitempty"`   // from submission; 0 is none
	Grace    Duration `toml:"grace" json:"grace,omitempty"`         // for requests in flight at pause and end
	Tokens   int64    `toml:"tokens" json:"tokens,omitempty"`       // budget; 0 is none
	Failures int      `toml:"failures" json:"failures,omitempty"`   // engine failures of one item before it fails; 3 if unset
	FailFast bool     `toml:"fail_fast" json:"fail_fast,omitempty"` // the first failed item stops the run
	// FailedShardsInARow is how many shards in a row without an answered item
	// pause the run; 0 is off.
	FailedShardsInARow int `toml:"failed_shards_in_a_row" json:"failed_shards_in_a_row,omitempty"`
}

// Duration is a time.Duration written as "10s" or "1h30m".
type Duration time.Duration

// Std returns the time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// MarshalText writes "1h30m0s".
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads what time.ParseDuration does.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}
