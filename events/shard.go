package events

import (
	"cmp"
	"fmt"
)

// The types of events about shards.
const (
	TypeWork          Type = "rollout.shard.work.v1"
	TypeShardDone     Type = "rollout.shard.done.v1"
	TypeShardLost     Type = "rollout.shard.lost.v1"
	TypeShardReleased Type = "rollout.shard.released.v1"
	TypeInputMissing  Type = "rollout.input.missing.v1"
	TypeModelMissing  Type = "rollout.model.missing.v1"
	TypeInputChanged  Type = "rollout.input.changed.v1"
)

// Work offers one shard to the workers of a pool.
type Work struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Shard is the shard's number in the run, from 0.
	Shard int `json:"shard" jsonschema:"minimum=0"`
	// Generation counts how often the shard was sent because it was lost.
	Generation int `json:"generation" jsonschema:"minimum=0"`
	// Range is the range whose cut table has the shard.
	Range int `json:"range" jsonschema:"minimum=0"`
	// Row is the shard's row in that table, from 0.
	Row int `json:"row" jsonschema:"minimum=0"`
	// Pool is the pool that serves the run.
	Pool string `json:"pool"`
	// Term is that of the sender's lease; 0 is none.
	Term uint64 `json:"term,omitempty"`
	// Sequence is that of the control document as the sender saw it.
	Sequence uint64 `json:"sequence,omitempty"`
}

// Counts says what became of a shard's items and what it took.
type Counts struct {
	// OK is how many items were answered.
	OK int `json:"ok" jsonschema:"minimum=0"`
	// Failed is how many were not.
	Failed int `json:"failed,omitempty" jsonschema:"minimum=0"`
	// ByClass counts the failed ones by class; it sums up to Failed.
	ByClass map[string]int `json:"by_class,omitempty"`
	// PromptTokens is what the answered items' prompts have.
	PromptTokens int64 `json:"prompt_tokens,omitempty" jsonschema:"minimum=0"`
	// CompletionTokens is what their answers have.
	CompletionTokens int64 `json:"completion_tokens,omitempty" jsonschema:"minimum=0"`
	// WastedTokens is what was generated and not kept.
	WastedTokens int64 `json:"wasted_tokens,omitempty" jsonschema:"minimum=0"`
}

// ShardDone says that a shard's result is committed, or that it was sealed.
type ShardDone struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Shard is the shard's number.
	Shard int `json:"shard" jsonschema:"minimum=0"`
	// Attempt is the claim that committed; 0 if it was sealed unclaimed.
	Attempt uint64 `json:"attempt"`
	// Worker is who committed; empty if nobody did.
	Worker string `json:"worker,omitempty"`
	// Counts says what became of the items.
	Counts Counts `json:"counts"`
	// Digest is the blake3 of the result object, in hex; empty if there is
	// none.
	Digest string `json:"digest,omitempty"`
	// Term is that of the shard document; 0 is none.
	Term uint64 `json:"term,omitempty"`
	// Sequence is that of the control document as the worker saw it.
	Sequence uint64 `json:"sequence,omitempty"`
}

// ShardLost says that a dispatched shard has no living holder, so that it is
// sent again with the next generation.
type ShardLost struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Shard is the shard's number.
	Shard int `json:"shard" jsonschema:"minimum=0"`
	// Generation is the one that was lost; a later one is not.
	Generation int `json:"generation" jsonschema:"minimum=0"`
	// Worker is the dead holder; empty if nobody held it.
	Worker string `json:"worker,omitempty"`
	// Reason says why it counts as lost, for people.
	Reason string `json:"reason,omitempty"`
}

// ShardReleased says that a worker gave a shard back, so that it is sent again at
// once.
type ShardReleased struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Shard is the shard's number.
	Shard int `json:"shard" jsonschema:"minimum=0"`
	// Worker is who gave it back.
	Worker string `json:"worker"`
	// Attempt is the claim that ended.
	Attempt uint64 `json:"attempt"`
}

// InputMissing says that a shard's input object is not there: the run pauses.
type InputMissing struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Shard is the shard's number.
	Shard int `json:"shard" jsonschema:"minimum=0"`
	// Reason names what is missing, for people.
	Reason string `json:"reason,omitempty"`
}

// ModelMissing says that a worker that took a shard has not the model that the
// run was begun with, but another revision of it: the run pauses.
type ModelMissing struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Shard is the shard's number.
	Shard int `json:"shard" jsonschema:"minimum=0"`
	// Reason names what is missing, for people.
	Reason string `json:"reason,omitempty"`
}

// InputChanged says that a shard's bytes are not the planned ones: the run
// ends, its answers are kept.
type InputChanged struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Shard is the shard's number.
	Shard int `json:"shard" jsonschema:"minimum=0"`
	// Reason names what changed, for people.
	Reason string `json:"reason,omitempty"`
}

// EventType returns the payload's type.
func (Work) EventType() Type { return TypeWork }

// EventType returns the payload's type.
func (ShardDone) EventType() Type { return TypeShardDone }

// EventType returns the payload's type.
func (ShardLost) EventType() Type { return TypeShardLost }

// EventType returns the payload's type.
func (ShardReleased) EventType() Type { return TypeShardReleased }

// EventType returns the payload's type.
func (InputMissing) EventType() Type { return TypeInputMissing }

// EventType returns the payload's type.
func (ModelMissing) EventType() Type { return TypeModelMissing }

// EventType returns the payload's type.
func (InputChanged) EventType() Type { return TypeInputChanged }

func (p Work) check() error {
	return cmp.Or(runID(p.Run), count("shard", p.Shard), count("generation", p.Generation),
		count("range", p.Range), count("row", p.Row), name("pool", p.Pool))
}

func (p ShardDone) check() error {
	return cmp.Or(runID(p.Run), count("shard", p.Shard), optionalWorker(p.Worker), p.Counts.check(), digest(p.Digest))
}

func (c Counts) check() error {
	if len(c.ByClass) > maxClasses {
		return fmt.Errorf("by_class has %d classes, more than %d", len(c.ByClass), maxClasses)
	}
	for class, n := range c.ByClass {
		if err := cmp.Or(name("class", class), count("by_class", n)); err != nil {
			return err
		}
	}
	return cmp.Or(count("ok", c.OK), count("failed", c.Failed), count("prompt_tokens", c.PromptTokens),
		count("completion_tokens", c.CompletionTokens), count("wasted_tokens", c.WastedTokens))
}

func (p ShardLost) check() error {
	return cmp.Or(runID(p.Run), count("shard", p.Shard), count("generation", p.Generation),
		optionalWorker(p.Worker), text("reason", p.Reason))
}

func (p ShardReleased) check() error {
	return cmp.Or(runID(p.Run), count("shard", p.Shard), name("worker", p.Worker))
}

func (p InputMissing) check() error {
	return cmp.Or(runID(p.Run), count("shard", p.Shard), text("reason", p.Reason))
}

func (p ModelMissing) check() error {
	return cmp.Or(runID(p.Run), count("shard", p.Shard), text("reason", p.Reason))
}

func (p InputChanged) check() error {
	return cmp.Or(runID(p.Run), count("shard", p.Shard), text("reason", p.Reason))
}

// optionalWorker checks the name of a worker that may be nobody.
func optionalWorker(worker string) error {
	if worker == "" {
		return nil
	}
	return name("worker", worker)
}
