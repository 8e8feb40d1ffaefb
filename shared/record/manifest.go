package record

import (
	"time"

	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/shardtable"
)

// Manifest is the document run/<run>: what was submitted. Submit creates it,
// nobody changes it; the first one wins.
type Manifest struct {
	Schema    int            `json:"schema"`
	Run       identity.RunID `json:"run"`
	Name      string         `json:"name"`
	Kind      string         `json:"kind"`
	CreatedAt time.Time      `json:"created_at"`
	Inputs    []Input        `json:"inputs"`
	Dialect   string         `json:"dialect"`
	Config    config.Run     `json:"config"`
	ConfigKey string         `json:"config_key,omitempty"` // the object it came from; "" for the default
	ModelURI  string         `json:"model_uri"`
	ModelID   string         `json:"model_id"` // hex
	Pool      string         `json:"pool"`
	// Refused says why the run can't be: it is then Failed from the start.
	Refused string `json:"refused,omitempty"`
}

// Input is one pinned input object.
type Input struct {
	Key     string `json:"key"`
	Version string `json:"version"`
	Size    int64  `json:"size"`
	Packed  string `json:"packed,omitempty"` // "gzip" or "zstd": planned from an unpacked copy
	Name    string `json:"name,omitempty"`   // what users know it by, if that is not the key
}

// Label is what users know the input by.
func (i Input) Label() string {
	if i.Name != "" {
		return i.Name
	}
	return i.Key
}

// Desired is what a run shall do. Example: "pause".
type Desired string

// The desired states.
const (
	DesiredRun   Desired = "run"
	DesiredPause Desired = "pause"
	DesiredEnd   Desired = "end"
)

// Control is the document control/<run>: what users, and coordinate on its
// own findings, want of the run. Absent means Run. Workers read it before a
// claim and at each heartbeat.
type Control struct {
	Schema   int       `json:"schema"`
	Sequence uint64    `json:"sequence"`
	Desired  Desired   `json:"desired"`
	Reason   string    `json:"reason,omitempty"` // a run.Reason for End, words for Pause
	At       time.Time `json:"at"`
}

// Plan is the document plan/<run>: how far the plan is merged. Plan alone
// writes it.
type Plan struct {
	Schema      int         `json:"schema"`
	Ranges      []Ranges    `json:"ranges"` // per input
	Total       int         `json:"total"`  // ranges of all inputs
	Merged      int         `json:"merged"` // ranges in the index, from 0
	Shards      int         `json:"shards"`
	Items       uint64      `json:"items"`
	Lines       uint64      `json:"lines"`              // of the input being merged, so far
	Problem     string      `json:"problem,omitempty"`  // why planning can't go on, in words
	ProblemKind ProblemKind `json:"trouble,omitempty"`  // and in kind
	Control     uint64      `json:"control,omitempty"`  // the control sequence under which it was met
	IDs         []Hashes    `json:"ids,omitempty"`      // the merged ranges' own ids
	Requests    []Hashes    `json:"requests,omitempty"` // and what they ask, if the run asks that once
}

// Hashes names a list of the hashes that are new in the merged ranges from
// From to To, exclusive. Lists are joined to longer ones, so that there never
// are many.
type Hashes struct {
	From  int    `json:"from"`
	To    int    `json:"to"`
	Count uint64 `json:"count"`
}

// ProblemKind is the kind of problem that a plan has met.
type ProblemKind string

// The kinds of trouble.
const (
	InputMissing ProblemKind = "missing" // pauses the run; planning goes on when it is resumed
	InputChanged ProblemKind = "changed" // ends the run
	InputSlow    ProblemKind = "slow"    // pauses the run: an archive or a line that takes longer to read than may be
	InputBroken  ProblemKind = "broken"  // ends the run: an archive that can't be unpacked
)

// PlanLease is the document plan/<run>/turn: until when somebody does what all others
// who plan the run leave to him. It spares work, and decides nothing.
type PlanLease struct {
	Schema int       `json:"schema"`
	Until  time.Time `json:"until,omitzero"`
}

// Ranges says how many ranges an input object has, and the key, version and
// size they count in (the unpacked copy's, for a packed input).
type Ranges struct {
	Key     string `json:"key"`
	Version string `json:"version"`
	Size    int64  `json:"size"`
	Count   int    `json:"count"`
}

// Complete reports whether every range is in the index.
func (p Plan) Complete() bool { return p.Merged == p.Total }

// Locate returns the input and the byte range [offset, limit) of range k, of
// all inputs' ranges counted through.
func (p Plan) Locate(k int) (input int, offset, limit int64, ok bool) {
	if k < 0 {
		return 0, 0, 0, false
	}
	for i, r := range p.Ranges {
		if k < r.Count {
			offset = int64(k) * RangeSize
			return i, offset, min(offset+RangeSize, r.Size), true
		}
		k -= r.Count
	}
	return 0, 0, 0, false
}

// RangeSize is how much of an input one planning task reads.
const RangeSize = shardtable.RangeSize

// RangeCount is the number of ranges of an input of that size; an empty one
// has none.
func RangeCount(size int64) int {
	if size <= 0 {
		return 0
	}
	return int((size-1)/RangeSize) + 1
}

// RangeResult is the object that a planned range leaves last: what the merge
// needs to know.
type RangeResult struct {
	Shards int    `json:"shards"`
	Items  uint64 `json:"items"`
	Lines  uint64 `json:"lines"`
	IDs    int    `json:"ids"` // explicit ids
	// Requests is how many items may share their answer with another.
	Requests int `json:"requests,omitempty"`
}

// IndexEntry is the object index/<k>: where range k stands among all ranges.
type IndexEntry struct {
	Range      int    `json:"range"`
	Input      int    `json:"input"`
	FirstShard int    `json:"first_shard"`
	Shards     int    `json:"shards"`
	FirstItem  uint64 `json:"first_item"`
	Items      uint64 `json:"items"`
	FirstLine  uint64 `json:"first_line"` // lines of the same input before the range
	Lines      uint64 `json:"lines"`
	// Duplicates is how many items of the range have an id that an earlier one
	// of the run has, Copies how many ask what an earlier one asks. Which they
	// are is in an object of repeats, if there are any.
	Duplicates int `json:"duplicates,omitempty"`
	Copies     int `json:"copies,omitempty"`
}
