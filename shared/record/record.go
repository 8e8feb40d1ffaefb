// Package record is the shape and the key of every document and object that
// makes up a run.
//
// The first part of a document's key says who may write it (see the table in
// each type's comment). Values are JSON with a schema version; unknown fields
// are kept out by writing whole values only. The package does no I/O and
// holds no rules: state machines live in shared/engine.
package record

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"rollout/shared/engine/identity"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// Schema is the version of every document. Documents of a newer one are
// refused, never guessed at.
const Schema = 1

// Prefixes of the bucket.
const (
	Prompts = "prompts/" // users write
	WorkDir = "work/"    // plan and shard results; expires
	Runs    = "runs/"    // users read
	Pending = "pending/" // uploads on their way to a content name
)

// Prefixes of documents that are listed.
const (
	RunPrefix  = "run/"
	OpenPrefix = "open/"
	BeatPrefix = "beat/"
)

// Keys of documents.
func ManifestKey(r identity.RunID) string    { return RunPrefix + string(r) }
func OpenKey(r identity.RunID) string        { return OpenPrefix + string(r) }
func ControlKey(r identity.RunID) string     { return "control/" + string(r) }
func CoordinatorKey(r identity.RunID) string { return "coordinator/" + string(r) }
func PlanKey(r identity.RunID) string        { return "plan/" + string(r) }
func TurnKey(r identity.RunID) string        { return "plan/" + string(r) + "/turn" }
func BeatKey(worker string) string           { return BeatPrefix + worker }
func WorkerKey(worker string) string         { return "worker/" + worker }
func FleetKey(pool string) string            { return "fleet/" + pool }

// Keys of objects.
func UnpackedKey(r identity.RunID, input int) string {
	return fmt.Sprintf("%s%s/input/%06d", WorkDir, r, input)
}
func JobKey(r identity.RunID) string { return fmt.Sprintf("%s%s/input/job.jsonl", WorkDir, r) }
func FileKey(r identity.RunID, content string) string {
	return fmt.Sprintf("%s%s/files/%s", WorkDir, r, content)
}
func CutTableKey(r identity.RunID, rng int) string {
	return fmt.Sprintf("%s%s/plan/%06d.cuts", WorkDir, r, rng)
}
func SegmentKey(r identity.RunID, rng, segment int, of Hashed) string {
	return fmt.Sprintf("%s%s/plan/%06d-%03d.%s", WorkDir, r, rng, segment, of)
}
func HashesKey(r identity.RunID, h Hashes, of Hashed) string {
	return fmt.Sprintf("%s%s/index/%06d-%06d.%s", WorkDir, r, h.From, h.To, of)
}
func RepeatsKey(r identity.RunID, rng int, of Hashed) string {
	return fmt.Sprintf("%s%s/index/%06d.%s", WorkDir, r, rng, of)
}
func RangeKey(r identity.RunID, rng int) string {
	return fmt.Sprintf("%s%s/plan/%06d.json", WorkDir, r, rng)
}
func IndexKey(r identity.RunID, rng int) string {
	return fmt.Sprintf("%s%s/index/%06d.json", WorkDir, r, rng)
}

// FinalDir is where the segments of a run's files are, while they are written.
func FinalDir(r identity.RunID) string { return fmt.Sprintf("%s%s/final/", WorkDir, r) }

// FinalKey is the Segment that begins with that shard.
func FinalKey(r identity.RunID, from int) string {
	return fmt.Sprintf("%ssegments/%010d.json", FinalDir(r), from)
}

// FinalRowsKey is where one execution leaves the rows of a segment that are to
// stand in the file.
func FinalRowsKey(r identity.RunID, from int, nonce, file string) string {
	return fmt.Sprintf("%srows/%010d-%s.%s", FinalDir(r), from, nonce, file)
}

// Hashed is what lines are compared by. Example: "ids".
type Hashed string

// What lines are compared by.
const (
	IDs      Hashed = "ids"      // their own ids: a line that repeats one is an error
	Requests Hashed = "requests" // what they ask: a line that repeats it is a copy
)

// shardsPerFolder is how many shards share a folder: where a bucket is a folder
// tree, each new folder costs two synced writes, and many entries slow one down.
const shardsPerFolder = 1000

// ShardObjectKey is where an attempt's result or checkpoint goes, create-only:
// work/<run>/shards/<n div 1000>/<n>-<attempt>-<nonce>.
func ShardObjectKey(r identity.RunID, shard int, attempt uint64, nonce string) string {
	return fmt.Sprintf("%s%s/shards/%d/%d-%d-%s", WorkDir, r, shard/shardsPerFolder, shard, attempt, nonce)
}

// OutputKey is a file that users read, such as runs/<run>/completions.jsonl.
func OutputKey(r identity.RunID, name string) string { return Runs + string(r) + "/" + name }

// Names of the files of a run.
const (
	Completions = "completions.jsonl"
	Errors      = "errors.jsonl"
	SummaryFile = "summary.json"
)

// RunOf returns the run id at the end of a key like run/<run>.
func RunOf(key string) (identity.RunID, bool) {
	_, id, _ := strings.Cut(key, "/")
	r := identity.RunID(id)
	return r, r.Valid()
}

// Encode renders a document's or small object's value.
func Encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // the types here hold nothing that JSON can't
		panic(fmt.Sprintf("record: encode %T: %v", v, err))
	}
	return b
}

// Decode reads a value written by Encode. what names it in errors. A value of
// a newer schema is Invalid: its fields may mean something else.
func Decode(b []byte, v any, what string) error {
	if err := checkSchema(b, what); err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fault.As(fault.Corrupt, err, "decode %s", what)
	}
	return nil
}

// checkSchema looks no further than the member schema, which comes first in
// what Encode writes.
func checkSchema(b []byte, what string) error {
	o := jsonl.ReadObject(b)
	for m, ok := o.Next(); ok; m, ok = o.Next() {
		if string(m.Name) != "schema" {
			continue
		}
		version, err := strconv.Atoi(string(m.Value))
		if err != nil {
			return fault.As(fault.Corrupt, err, "decode %s", what)
		}
		if version > Schema {
			return &fault.Error{Kind: fault.Invalid, Op: "decode " + what, Remedy: "upgrade this rollout",
				Err: fault.New(fault.Invalid, "it is of schema %d, this version reads up to %d", version, Schema)}
		}
		return nil
	}
	return nil // what is no object is found out when it is decoded
}
