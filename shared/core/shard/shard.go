// Package shard is the state machine of one shard: the unit of dispatch, claim,
// checkpoint and release.
//
//	Pending ──claim──▶ Running ──commit──▶ Done   (terminal)
//	   ▲                │  ▲ └─checkpoint (same attempt)
//	   ├──release───────┘  └─claim over a dead holder: attempt+1
//	   └── coordinate may seal any open shard to Done
//
// Each method takes the document as it was read and returns the document to
// write. The caller writes it by compare-and-swap, so that of any number of
// concurrent claims at most one holds (I3, see shared/README.md). An absent
// document is Pending.
//
// # Poison
//
// An item that crashes engines must not end its run. After a crash, the items
// that were in flight are suspects. After two holders in a row that vanished,
// all items without a row are. A holder asks suspects last and on probation:
// nothing else of the worker is in flight meanwhile, and the document names the
// items first.
//
//	       in flight at a crash            its group crashes
//	open ──────────────────────▶ suspect ──────────────────▶ accused ──crash──▶ accused ──crash──▶ poison
//	                                │   asked in groups of √n   │   asked one by one, alone          │
//	                                ▼                           ▼                                    ▼
//	                             answered                    answered                            error row
//
// So one poison item among n suspects costs four crashes: one in flight, one in
// its group, two alone. A crash counts fully only if the engine was observed to
// process nothing else; otherwise another worker's item may be the cause, and
// the first three are ignored. A holder that vanishes during probation counts
// like the latter, because it may also have been killed: an item that takes its
// worker down costs two holders until it is a suspect, and five more. An answer
// clears an item, and no other item is charged.
//
// The package reads no clock, writes nothing, and does not look into rows.
package shard

import (
	"time"

	"rollout/shared/core/cost"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/fault"
)

// Schema is the version of the shard document.
const Schema = 1

// State is where a shard stands in its life.
type State string

// The states.
const (
	Pending State = "pending"
	Running State = "running"
	Done    State = "done"
)

// Ref names immutable bytes in the bucket by key, length and blake3 in hex.
type Ref struct {
	Key    string `json:"key"`
	Length int64  `json:"length"`
	Digest string `json:"digest"`
}

// Counts holds the outcomes of a shard's items and the tokens that they took.
type Counts struct {
	OK               int            `json:"ok"`
	Failed           int            `json:"failed,omitempty"`
	ByClass          map[string]int `json:"by_class,omitempty"` // of Failed, by fault.Class
	PromptTokens     int64          `json:"prompt_tokens,omitempty"`
	CompletionTokens int64          `json:"completion_tokens,omitempty"`
	WastedTokens     int64          `json:"wasted_tokens,omitempty"`
	// CachedTokens are those of PromptTokens that the server had in its cache, and
	// ReasoningTokens those of CompletionTokens that are a model's reasoning, as far as it
	// reports them.
	CachedTokens    int64 `json:"cached_tokens,omitempty"`
	ReasoningTokens int64 `json:"reasoning_tokens,omitempty"`
	// WastedEstimated is how many of WastedTokens are estimates: of answers that were
	// not streamed, and not finished.
	WastedEstimated int64 `json:"wasted_estimated,omitempty"`
	// Finish counts items of OK by the finish reason of their answer, except those
	// whose reason is FinishStop. An item with several answers counts by the first
	// reason that is another.
	Finish map[string]int `json:"finish,omitempty"`
	// UsageUnknown is how many items of OK have estimated tokens, because the server
	// did not report them.
	UsageUnknown int `json:"usage_unknown,omitempty"`
	// Kept is how many items of OK have the row of their run's parent, and KeptFailed
	// how many of Failed.
	Kept       int `json:"kept,omitempty"`
	KeptFailed int `json:"kept_failed,omitempty"`
	// Machines are the machines' time that all attempts took, by kind; nil where machines
	// have no price.
	Machines cost.Uses `json:"machines,omitempty"`
	// TokenNanoUSD is what the tokens of all requests of all attempts cost when they were
	// used, in billionths of a dollar; 0 where they have no price.
	TokenNanoUSD int64 `json:"token_nano_usd,omitempty"`
}

// Doc is the document shard/<hash>-<run>-<n>, at most 4 KiB.
type Doc struct {
	Schema    int            `json:"schema"`
	Run       identity.RunID `json:"run"`
	Shard     int            `json:"shard"`
	State     State          `json:"state"`
	Attempt   uint64         `json:"attempt"`
	Worker    string         `json:"worker,omitempty"` // the holder; of a Done shard the one that committed
	ClaimedAt time.Time      `json:"claimed_at,omitzero"`
	Items     int            `json:"items,omitempty"`
	// Checkpoint holds final rows of some items. Result holds the rows of all.
	Checkpoint *Ref  `json:"checkpoint,omitempty"`
	Result     *Ref  `json:"result,omitempty"`
	OutputLen  int64 `json:"output_len,omitempty"` // bytes of the output rows, which begin Result; error rows follow
	// Sealed says that the shard is Done without a Result, because its run ended
	// first. Items without a row in the checkpoint are counted under this class.
	Sealed fault.Class `json:"sealed,omitempty"`
	Counts Counts      `json:"counts"`
	// Suspects are items that may have crashed an engine. OnProbation are those
	// that the holder asks now with nothing else in flight. Crashes counts the
	// crashes during probation, by item. LastCrash names the start of the engine
	// that crashed last: see Crash.
	Suspects    interval.Set    `json:"suspects,omitzero"`
	OnProbation []int           `json:"solo,omitempty"`
	Crashes     map[int]Crashes `json:"deaths,omitempty"`
	LastCrash   string          `json:"last_death,omitempty"`
	// VanishedHolders is how many holders in a row ended without a release.
	VanishedHolders int `json:"vanished,omitempty"`
	// Snapshot is the newest snapshot of a training. The next holder continues
	// from it.
	Snapshot *Snapshot `json:"snapshot,omitempty"`
}

// Snapshot names a saved state of a training.
type Snapshot struct {
	ID    string   `json:"id"` // of its content: 64 hex digits
	Step  int      `json:"step"`
	Steps int      `json:"steps"`
	Loss  *float64 `json:"loss,omitempty"` // averaged over the last steps
}

// Holder identifies one claim.
type Holder struct {
	Worker  string
	Attempt uint64
}

// HeldBy reports whether h is the present holder.
func (d Doc) HeldBy(h Holder) bool {
	return d.State == Running && d.Worker == h.Worker && d.Attempt == h.Attempt
}

// Open reports whether the shard still needs work.
func (d Doc) Open() bool { return d.State != Done }

// New returns the document that stands for an absent one: a Pending shard.
func New(run identity.RunID, n int) Doc {
	return Doc{Schema: Schema, Run: run, Shard: n, State: Pending}
}

// HolderStatus is the state of the holder of a Running shard.
type HolderStatus string

// The states of a holder.
const (
	HolderAlive    HolderStatus = ""         // it holds the shard
	HolderLeft     HolderStatus = "left"     // it lives or ended in order, and no longer holds the shard
	HolderVanished HolderStatus = "vanished" // its heartbeats stopped
	// HolderVanishedBlameless is HolderVanished for a shard whose items are never
	// the cause, such as a training's.
	HolderVanishedBlameless HolderStatus = "dropped"
)

// Claim gives the shard to the worker with the next attempt. holder is the state
// of the present holder, and is ignored for a Pending shard. A living holder or a
// Done shard is a Conflict.
func (d Doc) Claim(worker string, now time.Time, holder HolderStatus) (Doc, error) {
	switch {
	case d.State == Done:
		return d, fault.New(fault.Conflict, "shard %d is done", d.Shard)
	case d.State == Running && holder == HolderAlive:
		return d, fault.New(fault.Conflict, "shard %d is held by %s", d.Shard, d.Worker)
	}
	if d.State == Running && holder == HolderVanished {
		d = d.chargeVanishedHolder()
	}
	if d.State == Running && holder == HolderVanishedBlameless {
		d.VanishedHolders++
	}
	d.OnProbation = nil
	d.State, d.Worker, d.Attempt, d.ClaimedAt = Running, worker, d.Attempt+1, now
	return d, nil
}

// CountLost returns the document with the tokens of a holder that vanished and that no
// checkpoint has, as wasted: its answers are lost. It also counts what they cost, and the
// time of its machine.
func (d Doc) CountLost(s Spent) Doc {
	d.Counts.WastedTokens += max(0, s.Tokens-d.Counts.Tokens())
	d.Counts.Machines = d.Counts.Machines.AtLeast(s.Kind, s.Machine)
	d.Counts.TokenNanoUSD = max(d.Counts.TokenNanoUSD, s.TokenNanoUSD)
	return d
}

// Spent is what all attempts of a shard have spent by the last heartbeat of its holder. The
// zero value says that nothing is known.
type Spent struct {
	Tokens  int64
	Kind    string   // of the holder's machine
	Machine cost.Use // of that kind
	// TokenNanoUSD is what its tokens cost: see Counts.
	TokenNanoUSD int64
}

// SaveCheckpoint records a checkpoint: final rows of some items, which every later
// holder keeps. It is Fenced unless h holds the shard.
func (d Doc) SaveCheckpoint(h Holder, checkpoint Ref, c Counts) (Doc, error) {
	if err := d.held(h, "checkpoint"); err != nil {
		return d, err
	}
	d.Checkpoint, d.Counts = &checkpoint, c
	return d, nil
}

// SaveSnapshot records a training's snapshot. It resets VanishedHolders, because
// the training made progress. It is Fenced unless h holds the shard.
func (d Doc) SaveSnapshot(h Holder, s Snapshot) (Doc, error) {
	if err := d.held(h, "snapshot"); err != nil {
		return d, err
	}
	d.Snapshot, d.VanishedHolders = &s, 0
	return d, nil
}

// Commit ends the shard with the rows of all its items. It is Fenced unless h
// holds the shard.
func (d Doc) Commit(h Holder, result Ref, outputLen int64, c Counts) (Doc, error) {
	if err := d.held(h, "commit"); err != nil {
		return d, err
	}
	d.State, d.Result, d.OutputLen, d.Counts = Done, &result, outputLen, c
	d.Checkpoint = nil
	return d.clearSuspicion(), nil
}

// Release gives a Running shard back, with its checkpoint and its suspects. Its
// holder may do so, and every other caller that has read the document. A shard in
// another state is a Conflict.
func (d Doc) Release() (Doc, error) {
	if d.State != Running {
		return d, fault.New(fault.Conflict, "release of shard %d, which is %s", d.Shard, d.State)
	}
	d.State, d.Worker, d.ClaimedAt = Pending, "", time.Time{}
	d.OnProbation, d.VanishedHolders = nil, 0
	return d, nil
}

// Seal ends an open shard without a result, because its run ends. The rows of the
// checkpoint are kept, and the other items fail with the class. items is how many
// items the shard has. A later commit fails. A Done shard is a Conflict.
func (d Doc) Seal(class fault.Class, items int) (Doc, error) {
	if d.State == Done {
		return d, fault.New(fault.Conflict, "shard %d is done", d.Shard)
	}
	d.State, d.Sealed, d.Items = Done, class, items
	if left := items - d.Counts.OK - d.Counts.Failed; left > 0 {
		by := map[string]int{string(class): left}
		for k, v := range d.Counts.ByClass {
			by[k] += v
		}
		d.Counts.ByClass = by
		d.Counts.Failed += left
	}
	return d.clearSuspicion(), nil
}

// held returns Fenced unless h holds the shard. what names the refused write.
func (d Doc) held(h Holder, what string) error {
	if d.HeldBy(h) {
		return nil
	}
	return fault.New(fault.Fenced, "%s of shard %d by %s, attempt %d: it is %s, held by %q, attempt %d",
		what, d.Shard, h.Worker, h.Attempt, d.State, d.Worker, d.Attempt)
}
