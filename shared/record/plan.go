package record

import (
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/shardtable"
)

// PrunedVariant records that a run sends no shards of a variant from shard From on, at PrunedKey.
// The first record of a variant is the valid one. Coordinate writes it before any of
// the variant's shards becomes done without having been sent, and finalize gives the
// items of those shards error rows of the class pruned.
type PrunedVariant struct {
	Schema  int            `json:"schema"`
	Run     identity.RunID `json:"run"`
	Variant uint32         `json:"variant"`
	From    int            `json:"from"` // the first shard that is not sent
	Why     string         `json:"why"`  // for users
}

// Has reports whether the record is about shard n of its variant.
func (p PrunedVariant) Has(n int) bool { return n >= p.From }

// Plan is the document plan/<run>: how far the plan is merged. Only plan writes it.
type Plan struct {
	Schema      int         `json:"schema"`
	Ranges      []Ranges    `json:"ranges"` // one for each input; none with a List
	Total       int         `json:"total"`  // ranges of all inputs
	Merged      int         `json:"merged"` // ranges in the index, from 0
	Shards      int         `json:"shards"`
	Items       uint64      `json:"items"`
	Lines       uint64      `json:"lines"`              // merged lines of the input that is being merged
	Problem     string      `json:"problem,omitempty"`  // why planning cannot continue
	ProblemKind ProblemKind `json:"trouble,omitempty"`  // of Problem
	Control     uint64      `json:"control,omitempty"`  // the control sequence under which Problem occurred
	IDs         []Hashes    `json:"ids,omitempty"`      // of the explicit ids in the merged ranges
	Requests    []Hashes    `json:"requests,omitempty"` // of their requests, in a run with config.Dedupe
	// List is where the Ranges of a run of many files are; nil for other runs.
	List *SourceList `json:"list,omitempty"`
	// Growing says that the run's kind may append ranges. Appended are those of the
	// last appended object; nil before the first.
	Growing  bool      `json:"growing,omitempty"`
	Appended *Appended `json:"appended,omitempty"`
	// Inherited is what a child has from its parent; nil for a run of its own.
	Inherited *Inheritance `json:"inherited,omitempty"`
	// Roles is what is merged by role, from role 0 on; empty while all is of role 0.
	Roles []run.RolePlan `json:"roles,omitempty"`
	// Looks is how many looks of a run that prunes are decided, and Pruned what they pruned, in
	// their order.
	Looks  int              `json:"looks,omitempty"`
	Pruned []PlannedPruning `json:"pruned,omitempty"`
}

// AllMerged reports whether every range that is planned so far is in the index.
func (p Plan) AllMerged() bool { return p.Merged == p.Total }

// Complete reports whether every range is in the index, and none will be appended.
func (p Plan) Complete() bool { return p.AllMerged() && !p.Growing }

// LastFirst returns the first range of what was planned last: of all inputs of the
// run, or of the last appended object.
func (p Plan) LastFirst() int {
	if p.Appended != nil {
		return p.Appended.First
	}
	return 0
}

// Ranges is the number of ranges of an input object, with the key, version and
// size that they refer to: of a packed input, those of its unpacked copy.
type Ranges struct {
	Key     string `json:"key"`
	Version string `json:"version"`
	Size    int64  `json:"size"`
	Count   int    `json:"count"`
	Role    uint32 `json:"role,omitempty"` // of the items, unless its kind gives each its own: see Manifest.Role
	// Digest is that of the object's bytes, if no range of it is planned.
	Digest string `json:"digest,omitempty"`
}

// Appended are the ranges of an object that the run's kind appended. The object is
// at AppendedKey, create-only, and a function of the results that it was made from.
// Its role is a function of the run's kind and manifest and of its number.
type Appended struct {
	Ranges
	Input int `json:"input"` // its number, behind the inputs of the run
	First int `json:"first"` // its first range
	// MadeFrom is the digest of the results' digests, in the order of their shards.
	MadeFrom string `json:"made_from"`
}

// RangeSize is how many bytes of an input one planning task reads.
const RangeSize = shardtable.RangeSize

// RangeCount returns the number of ranges of an input of that size, 0 for an empty
// one.
func RangeCount(size int64) int {
	if size <= 0 {
		return 0
	}
	return int((size-1)/RangeSize) + 1
}

// Hashes names a list of the hashes that are new in the merged ranges From to To,
// exclusive. Lists are joined to longer ones, so that there are only a few.
type Hashes struct {
	From  int    `json:"from"`
	To    int    `json:"to"`
	Count uint64 `json:"count"`
}

// ProblemKind is the kind of a plan's Problem. Example: "missing".
type ProblemKind string

// The kinds of problems.
const (
	InputMissing ProblemKind = "missing" // pauses the run; planning continues after a resume
	InputChanged ProblemKind = "changed" // ends the run
	InputSlow    ProblemKind = "slow"    // pauses the run: reading an archive or a line takes too long
	InputBroken  ProblemKind = "broken"  // ends the run: an archive cannot be unpacked
)

// PlanLease is the document plan/<run>/turn: until when one planner does the work
// that concurrent planners of the run skip. It saves work and decides nothing.
type PlanLease struct {
	Schema int       `json:"schema"`
	Until  time.Time `json:"until,omitzero"`
}

// RangeResult is the object that a range's planning task writes last, for the
// merge.
type RangeResult struct {
	Shards int    `json:"shards"`
	Items  uint64 `json:"items"`
	Lines  uint64 `json:"lines"`
	IDs    int    `json:"ids"` // explicit ids
	// Requests is how many items may share their answer with another one.
	Requests int `json:"requests,omitempty"`
	// Roles is what the range has of each role, in a range of several; empty if all of it is of
	// the role of its object.
	Roles []run.RolePlan `json:"roles,omitempty"`
}

// IndexEntry is the object index/<k>: the position of range k among all ranges.
type IndexEntry struct {
	Range      int    `json:"range"`
	Input      int    `json:"input"`
	FirstShard int    `json:"first_shard"`
	Shards     int    `json:"shards"`
	FirstItem  uint64 `json:"first_item"`
	Items      uint64 `json:"items"`
	FirstLine  uint64 `json:"first_line"` // lines of the same input before the range
	Lines      uint64 `json:"lines"`
	// Duplicates is how many items of the range have the id of an earlier item of
	// the run. Copies is how many have the request of an earlier item. If there are
	// any, the object at RepeatsKey names them.
	Duplicates int `json:"duplicates,omitempty"`
	Copies     int `json:"copies,omitempty"`
}
