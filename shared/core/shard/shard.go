// Package shard is the state machine of one shard: the unit of dispatch,
// claim, checkpoint and hand-back.
//
//	Pending ──claim──▶ Running ──commit──▶ Done   (terminal)
//	   ▲                │  ▲ └─checkpoint (same attempt)
//	   ├──release───────┘  └─claim over a dead holder: attempt+1
//	   └── coordinate may seal any open shard to Done
//
// The functions take the document as it was read and return the document to
// write; the caller writes it by compare-and-swap, so of any number of
// concurrent claims at most one holds (I3). An absent document is Pending.
//
// An item that engines die of must not end a run. What was in flight when one
// died, or all items without a row when two holders in a row vanished, is
// suspect, and asked last, in trials: nothing else of the worker is in flight,
// and the document names the items first.
//
//	       in flight at a death            its group's engine dies
//	open ────────────────────────▶ suspect ───────────────────────▶ accused ──dies──▶ accused ──dies──▶ poison
//	                                  │     asked in groups of √n      │    asked one by one, alone        │
//	                                  ▼                                ▼                                   ▼
//	                               answered                         answered                           error row
//
// One poison among n suspects costs four deaths so: one in flight, one in its
// group, two alone. A death counts in full if somebody saw that the engine died
// while it worked on nothing else; else another worker's item may be why, and
// three such count nothing. So it is if the holder itself vanishes with items
// named, alone or not, wherever its engine lives: an item that takes its worker
// along costs two that vanish before anybody is named, and five more. Who is
// answered is cleared, and nobody else is charged.
//
// The package reads no clock, writes nothing, and never looks into rows.
package shard

import (
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/fault"
)

// Schema is the version of the shard document.
const Schema = 1

// State is where a shard is.
type State string

// The states.
const (
	Pending State = "pending"
	Running State = "running"
	Done    State = "done"
)

// Ref names immutable bytes in the bucket: a key, their length and blake3.
type Ref struct {
	Key    string `json:"key"`
	Length int64  `json:"length"`
	Digest string `json:"digest"`
}

// Counts says what became of a shard's items and what it took.
type Counts struct {
	OK               int            `json:"ok"`
	Failed           int            `json:"failed,omitempty"`
	ByClass          map[string]int `json:"by_class,omitempty"` // sums up to Failed
	PromptTokens     int64          `json:"prompt_tokens,omitempty"`
	CompletionTokens int64          `json:"completion_tokens,omitempty"`
	WastedTokens     int64          `json:"wasted_tokens,omitempty"`
}

// Doc is the document shard/<hash>-<run>-<n>, at most 4 KiB.
type Doc struct {
	Schema    int            `json:"schema"`
	Run       identity.RunID `json:"run"`
	Shard     int            `json:"shard"`
	State     State          `json:"state"`
	Attempt   uint64         `json:"attempt"`
	Worker    string         `json:"worker,omitempty"` // the holder; kept on Done as who committed
	ClaimedAt time.Time      `json:"claimed_at,omitzero"`
	Items     int            `json:"items,omitempty"`
	// Checkpoint holds final rows of some items; Result the rows of all.
	Checkpoint *Ref  `json:"checkpoint,omitempty"`
	Result     *Ref  `json:"result,omitempty"`
	OutputLen  int64 `json:"output_len,omitempty"` // of Result: output rows first, then error rows
	// Sealed is why a Done shard has no Result: its run ended first. Items
	// without a row in the checkpoint are counted under this class.
	Sealed fault.Class `json:"sealed,omitempty"`
	Counts Counts      `json:"counts"`
	// Suspects are items that an engine may have died of. Solo are those that
	// the holder asks now with nothing else in flight, Deaths what became of
	// such trials, LastDeath the start of the engine that died in the last one.
	Suspects    interval.Set    `json:"suspects,omitzero"`
	OnProbation []int           `json:"solo,omitempty"`
	Crashes     map[int]Crashes `json:"deaths,omitempty"`
	LastCrash   string          `json:"last_death,omitempty"`
	// VanishedHolders is how many holders in a row died without a release.
	VanishedHolders int `json:"vanished,omitempty"`
	// Snapshot is the newest of a training's, from which its next holder goes
	// on.
	Snapshot *Snapshot `json:"snapshot,omitempty"`
}

// Snapshot names a state of a training.
type Snapshot struct {
	ID    string   `json:"id"` // by content: 64 hex digits
	Step  int      `json:"step"`
	Steps int      `json:"steps"`
	Loss  *float64 `json:"loss,omitempty"` // of the last steps
}

// Holder identifies one claim.
type Holder struct {
	Worker  string
	Attempt uint64
}

// HeldBy reports whether h's claim is the one that holds.
func (d Doc) HeldBy(h Holder) bool {
	return d.State == Running && d.Worker == h.Worker && d.Attempt == h.Attempt
}

// Open reports whether the shard still needs work.
func (d Doc) Open() bool { return d.State != Done }

// New is the document that stands for an absent one.
func New(run identity.RunID, n int) Doc {
	return Doc{Schema: Schema, Run: run, Shard: n, State: Pending}
}

// HolderStatus is what became of the holder of a Running shard.
type HolderStatus string

// The fates.
const (
	HolderAlive             HolderStatus = ""         // it holds the shard
	HolderLeft              HolderStatus = "left"     // it lives on, or ended in order, without the shard
	HolderVanished          HolderStatus = "vanished" // its heartbeat is over
	HolderVanishedBlameless HolderStatus = "dropped"  // the same, of a shard whose items are never to blame for it
)

// Claim gives the shard to the worker. holder is what became of the present
// one; a living holder, or a Done shard, is a Conflict.
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

// SaveCheckpoint records a checkpoint: rows of some items, kept whoever goes on.
func (d Doc) SaveCheckpoint(h Holder, checkpoint Ref, c Counts) (Doc, error) {
	if err := d.held(h, "checkpoint"); err != nil {
		return d, err
	}
	d.Checkpoint, d.Counts = &checkpoint, c
	return d, nil
}

// SaveSnapshot records a snapshot. The holders that vanished before it are forgiven:
// the work goes on.
func (d Doc) SaveSnapshot(h Holder, s Snapshot) (Doc, error) {
	if err := d.held(h, "snapshot"); err != nil {
		return d, err
	}
	d.Snapshot, d.VanishedHolders = &s, 0
	return d, nil
}

// Commit ends the shard with its rows.
func (d Doc) Commit(h Holder, result Ref, outputLen int64, c Counts) (Doc, error) {
	if err := d.held(h, "commit"); err != nil {
		return d, err
	}
	d.State, d.Result, d.OutputLen, d.Counts = Done, &result, outputLen, c
	d.Checkpoint = nil
	return d.clearSuspicion(), nil
}

// Release hands the shard back, with whatever was checkpointed and suspected.
// Any party that
// read the bytes may do so: a holder that drains, or one who steals.
func (d Doc) Release() (Doc, error) {
	if d.State != Running {
		return d, fault.New(fault.Conflict, "release of shard %d, which is %s", d.Shard, d.State)
	}
	d.State, d.Worker, d.ClaimedAt = Pending, "", time.Time{}
	d.OnProbation, d.VanishedHolders = nil, 0
	return d, nil
}

// Seal ends an open shard without a result: its run is over. What is
// checkpointed is kept; the other items fail with the class. A later commit
// loses. items is how many the shard has.
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

func (d Doc) held(h Holder, what string) error {
	if d.HeldBy(h) {
		return nil
	}
	return fault.New(fault.Fenced, "%s of shard %d by %s, attempt %d: it is %s, held by %q, attempt %d",
		what, d.Shard, h.Worker, h.Attempt, d.State, d.Worker, d.Attempt)
}
