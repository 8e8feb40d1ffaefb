package events

import (
	"cmp"
	"fmt"
)

// The types of events about shards.
const (
	TypeWork            Type = "rollout.shard.work.v1"
	TypeShardDone       Type = "rollout.shard.done.v1"
	TypeShardLost       Type = "rollout.shard.lost.v1"
	TypeShardReleased   Type = "rollout.shard.released.v1"
	TypeItemFailed      Type = "rollout.item.failed.v1"
	TypeInputMissing    Type = "rollout.input.missing.v1"
	TypeModelMissing    Type = "rollout.model.missing.v1"
	TypeInputChanged    Type = "rollout.input.changed.v1"
	TypeRequestsRefused Type = "rollout.requests.refused.v1"
)

// Work offers one shard to the workers of a pool.
type Work struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Shard is the shard's number in the run, from 0.
	Shard int `json:"shard" jsonschema:"minimum=0"`
	// Generation is how often the shard was sent again, in a bounded range.
	Generation int `json:"generation" jsonschema:"minimum=0"`
	// Range is the range whose shard table has the shard.
	Range int `json:"range" jsonschema:"minimum=0"`
	// Row is the shard's row in that table, from 0.
	Row int `json:"row" jsonschema:"minimum=0"`
	// Pool is the pool that serves the shard's role.
	Pool string `json:"pool"`
	// Allowance is how many tokens the shard may take in all its attempts; 0 in a run
	// without a token budget.
	Allowance int64 `json:"allowance,omitempty" jsonschema:"minimum=0"`
	// AllowanceMicroUSD is how much money the shard may take in all its attempts, in
	// millionths of a dollar; 0 in a run without a budget in dollars.
	AllowanceMicroUSD int64 `json:"allowance_micro_usd,omitempty" jsonschema:"minimum=0"`
	// Term is reserved: no sender sets it, and no receiver acts on it.
	Term uint64 `json:"term,omitempty"`
	// Sequence is reserved: no sender sets it, and no receiver acts on it.
	Sequence uint64 `json:"sequence,omitempty"`
}

// Counts holds the outcomes of a shard's items and the tokens that they took.
type Counts struct {
	// OK is how many items were answered.
	OK int `json:"ok" jsonschema:"minimum=0"`
	// Failed is how many items failed.
	Failed int `json:"failed,omitempty" jsonschema:"minimum=0"`
	// ByClass counts the failed items by class.
	ByClass map[string]int `json:"by_class,omitempty"`
	// PromptTokens is the number of tokens in the prompts of answered items.
	PromptTokens int64 `json:"prompt_tokens,omitempty" jsonschema:"minimum=0"`
	// CompletionTokens is the number of tokens in their answers.
	CompletionTokens int64 `json:"completion_tokens,omitempty" jsonschema:"minimum=0"`
	// CachedTokens is how many of the prompt tokens the server had in its cache, as far as
	// it reports them.
	CachedTokens int64 `json:"cached_tokens,omitempty" jsonschema:"minimum=0"`
	// ReasoningTokens is how many of the completion tokens are a model's reasoning, as far
	// as the server reports them.
	ReasoningTokens int64 `json:"reasoning_tokens,omitempty" jsonschema:"minimum=0"`
	// WastedTokens is the number of tokens that were generated and not kept.
	WastedTokens int64 `json:"wasted_tokens,omitempty" jsonschema:"minimum=0"`
	// WastedEstimated is how many of the wasted tokens are estimates.
	WastedEstimated int64 `json:"wasted_estimated,omitempty" jsonschema:"minimum=0"`
	// Finish counts the answered items by finish reason, except "stop".
	Finish map[string]int `json:"finish,omitempty"`
	// UsageUnknown is how many answered items have estimated tokens.
	UsageUnknown int `json:"usage_unknown,omitempty" jsonschema:"minimum=0"`
	// Kept is how many answered items have the row of the run's parent.
	Kept int `json:"kept,omitempty" jsonschema:"minimum=0"`
	// KeptFailed is how many failed items have the row of the run's parent.
	KeptFailed int `json:"kept_failed,omitempty" jsonschema:"minimum=0"`
	// Machines is the time of machines that all attempts took, by type and class, such as
	// "g6.xlarge/spot".
	Machines map[string]MachineUse `json:"machines,omitempty"`
	// TokenNanoUSD is what the tokens of all attempts cost, in billionths of a dollar.
	TokenNanoUSD int64 `json:"token_nano_usd,omitempty" jsonschema:"minimum=0"`
}

// MachineUse is the time of machines of one kind that requests took, and the time before
// them.
type MachineUse struct {
	// Busy is the time of requests, in microseconds.
	Busy int64 `json:"busy_us,omitempty" jsonschema:"minimum=0"`
	// Boot is the time that machines took to start, in microseconds.
	Boot int64 `json:"boot_us,omitempty" jsonschema:"minimum=0"`
	// Idle is the time in which machines waited for requests, in microseconds.
	Idle int64 `json:"idle_us,omitempty" jsonschema:"minimum=0"`
	// NanoUSD is what that time cost, in billionths of a dollar.
	NanoUSD int64 `json:"nano_usd,omitempty" jsonschema:"minimum=0"`
}

// ShardDone reports that a shard's result is committed, or that the shard was
// sealed.
type ShardDone struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Shard is the shard's number.
	Shard int `json:"shard" jsonschema:"minimum=0"`
	// Attempt is the claim that committed; 0 if the shard was sealed unclaimed.
	Attempt uint64 `json:"attempt"`
	// Worker is the worker that committed; empty for a sealed shard without one.
	Worker string `json:"worker,omitempty"`
	// Counts holds the outcomes of the items.
	Counts Counts `json:"counts"`
	// Digest is the blake3 of the result object in hex; empty without a result.
	Digest string `json:"digest,omitempty"`
	// Term is reserved: no sender sets it, and no receiver acts on it.
	Term uint64 `json:"term,omitempty"`
	// Sequence is reserved: no sender sets it, and no receiver acts on it.
	Sequence uint64 `json:"sequence,omitempty"`
}

// ShardLost reports that a sent shard has lost its holder, so that it must be sent
// again with the next generation.
type ShardLost struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Shard is the shard's number.
	Shard int `json:"shard" jsonschema:"minimum=0"`
	// Generation is the generation that was lost; a later one is not affected.
	Generation int `json:"generation" jsonschema:"minimum=0"`
	// Worker is the dead holder; empty if the shard was unclaimed.
	Worker string `json:"worker,omitempty"`
	// Reason says why the shard counts as lost, for users.
	Reason string `json:"reason,omitempty"`
}

// ShardReleased reports that a worker gave a shard back, so that it must be sent
// again: at once or, with an Allowance, when it may take more tokens.
type ShardReleased struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Shard is the shard's number.
	Shard int `json:"shard" jsonschema:"minimum=0"`
	// Worker is the worker that released the shard.
	Worker string `json:"worker"`
	// Attempt is the claim that ended.
	Attempt uint64 `json:"attempt"`
	// Allowance is set if the shard was given back because it has used it up: the
	// Allowance of its work message.
	Allowance int64 `json:"allowance,omitempty" jsonschema:"minimum=0"`
	// Spent is how many tokens all attempts of such a shard have taken.
	Spent int64 `json:"spent,omitempty" jsonschema:"minimum=0"`
	// AllowanceMicroUSD is set as Allowance is, in a run with a budget in dollars.
	AllowanceMicroUSD int64 `json:"allowance_micro_usd,omitempty" jsonschema:"minimum=0"`
	// SpentMicroUSD is how much money all attempts of such a shard have taken, in millionths
	// of a dollar.
	SpentMicroUSD int64 `json:"spent_micro_usd,omitempty" jsonschema:"minimum=0"`
}

// ItemFailed reports that an item failed in a run that ends with its first failed item,
// before the item's shard is done.
type ItemFailed struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Shard is the shard's number.
	Shard int `json:"shard" jsonschema:"minimum=0"`
}

// InputMissing reports that a shard's input object does not exist. The run pauses.
type InputMissing struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Shard is the shard's number.
	Shard int `json:"shard" jsonschema:"minimum=0"`
	// Reason names what is missing, for users.
	Reason string `json:"reason,omitempty"`
}

// ModelMissing reports that the worker that received a shard can't answer it as the run asks:
// it serves another revision of the run's model, or knows no price that a budget in dollars
// could count. The run pauses.
type ModelMissing struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Shard is the shard's number.
	Shard int `json:"shard" jsonschema:"minimum=0"`
	// Reason names what is missing, for users.
	Reason string `json:"reason,omitempty"`
}

// InputChanged reports that a shard's bytes differ from the planned ones. The run
// ends and keeps its answers.
type InputChanged struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Shard is the shard's number.
	Shard int `json:"shard" jsonschema:"minimum=0"`
	// Reason names what changed, for users.
	Reason string `json:"reason,omitempty"`
}

// RequestsRefused reports that no request of the run is answered, for a cause that only
// a user can mend. The run pauses.
type RequestsRefused struct {
	// Run is the run's id.
	Run string `json:"run" jsonschema:"pattern=^[0-7][0-9A-HJKMNP-TV-Z]{25}$"`
	// Shard is the number of the shard that the worker answers.
	Shard int `json:"shard" jsonschema:"minimum=0"`
	// Reason is what the server says and what to do, for users.
	Reason string `json:"reason,omitempty"`
	// Outcome names what the requests met. Example: "status_401".
	Outcome string `json:"outcome"`
	// Control is the sequence of the run's control document under which they met it. An
	// event of before a resume must not pause the run again.
	Control *uint64 `json:"control,omitempty"`
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
func (ItemFailed) EventType() Type { return TypeItemFailed }

// EventType returns the payload's type.
func (InputMissing) EventType() Type { return TypeInputMissing }

// EventType returns the payload's type.
func (ModelMissing) EventType() Type { return TypeModelMissing }

// EventType returns the payload's type.
func (InputChanged) EventType() Type { return TypeInputChanged }

// EventType returns the payload's type.
func (RequestsRefused) EventType() Type { return TypeRequestsRefused }

func (p Work) check() error {
	return cmp.Or(runID(p.Run), count("shard", p.Shard), count("generation", p.Generation),
		count("range", p.Range), count("row", p.Row), name("pool", p.Pool), count("allowance", p.Allowance),
		count("allowance_micro_usd", p.AllowanceMicroUSD))
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
	if len(c.Finish) > maxClasses {
		return fmt.Errorf("finish has %d reasons, more than %d", len(c.Finish), maxClasses)
	}
	for reason, n := range c.Finish {
		if err := cmp.Or(name("finish", reason), count("finish", n)); err != nil {
			return err
		}
	}
	if len(c.Machines) > maxClasses {
		return fmt.Errorf("machines has %d kinds, more than %d", len(c.Machines), maxClasses)
	}
	for kind, u := range c.Machines {
		if !printable(kind, 1, maxKind) {
			return fmt.Errorf("machines has the kind %.64q, not 1 to %d printable characters", kind, maxKind)
		}
		if err := cmp.Or(count("busy_us", u.Busy), count("boot_us", u.Boot), count("idle_us", u.Idle),
			count("nano_usd", u.NanoUSD)); err != nil {
			return err
		}
	}
	return cmp.Or(count("ok", c.OK), count("failed", c.Failed), count("prompt_tokens", c.PromptTokens),
		count("completion_tokens", c.CompletionTokens), count("wasted_tokens", c.WastedTokens),
		count("cached_tokens", c.CachedTokens), count("reasoning_tokens", c.ReasoningTokens),
		count("wasted_estimated", c.WastedEstimated), count("token_nano_usd", c.TokenNanoUSD),
		count("usage_unknown", c.UsageUnknown), count("kept", c.Kept), count("kept_failed", c.KeptFailed))
}

func (p ShardLost) check() error {
	return cmp.Or(runID(p.Run), count("shard", p.Shard), count("generation", p.Generation),
		optionalWorker(p.Worker), text("reason", p.Reason))
}

func (p ShardReleased) check() error {
	return cmp.Or(runID(p.Run), count("shard", p.Shard), name("worker", p.Worker), count("allowance", p.Allowance),
		count("spent", p.Spent), count("allowance_micro_usd", p.AllowanceMicroUSD),
		count("spent_micro_usd", p.SpentMicroUSD))
}

func (p ItemFailed) check() error { return cmp.Or(runID(p.Run), count("shard", p.Shard)) }

func (p InputMissing) check() error {
	return cmp.Or(runID(p.Run), count("shard", p.Shard), text("reason", p.Reason))
}

func (p ModelMissing) check() error {
	return cmp.Or(runID(p.Run), count("shard", p.Shard), text("reason", p.Reason))
}

func (p InputChanged) check() error {
	return cmp.Or(runID(p.Run), count("shard", p.Shard), text("reason", p.Reason))
}

func (p RequestsRefused) check() error {
	return cmp.Or(runID(p.Run), count("shard", p.Shard), text("reason", p.Reason), name("outcome", p.Outcome))
}

// optionalWorker checks the name of a worker; it may be empty.
func optionalWorker(worker string) error {
	if worker == "" {
		return nil
	}
	return name("worker", worker)
}
