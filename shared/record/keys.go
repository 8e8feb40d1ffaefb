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

	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/jsonl"
)

// Schema is the version of every document. Documents of a newer one are
// refused, never guessed at.
const Schema = 1

// Prefixes of the bucket.
const (
	PromptsPrefix = "prompts/" // users write
	WorkPrefix    = "work/"    // plan and shard results; expires
	RunsPrefix    = "runs/"    // users read
	PendingPrefix = "pending/" // uploads on their way to a content name
)

// Prefixes of documents that are listed.
const (
	ManifestPrefix  = "run/"
	OpenRunPrefix   = "open/"
	HeartbeatPrefix = "beat/"
)

// Keys of documents.
func ManifestKey(r identity.RunID) string    { return ManifestPrefix + string(r) }
func OpenRunKey(r identity.RunID) string     { return OpenRunPrefix + string(r) }
func ControlKey(r identity.RunID) string     { return "control/" + string(r) }
func CoordinatorKey(r identity.RunID) string { return "coordinator/" + string(r) }
func PlanKey(r identity.RunID) string        { return "plan/" + string(r) }
func PlanLeaseKey(r identity.RunID) string   { return "plan/" + string(r) + "/turn" }
func HeartbeatKey(worker string) string      { return HeartbeatPrefix + worker }
func WorkerKey(worker string) string         { return "worker/" + worker }
func FleetKey(pool string) string            { return "fleet/" + pool }

// Keys of objects.
func UnpackedKey(r identity.RunID, input int) string {
	return fmt.Sprintf("%s%s/input/%06d", WorkPrefix, r, input)
}
func JobKey(r identity.RunID) string { return fmt.Sprintf("%s%s/input/job.jsonl", WorkPrefix, r) }
func TrainingFileKey(r identity.RunID, content string) string {
	return fmt.Sprintf("%s%s/files/%s", WorkPrefix, r, content)
}
func ShardTableKey(r identity.RunID, rng int) string {
	return fmt.Sprintf("%s%s/plan/%06d.cuts", WorkPrefix, r, rng)
}
func PlanHashesKey(r identity.RunID, rng, segment int, of HashKind) string {
	return fmt.Sprintf("%s%s/plan/%06d-%03d.%s", WorkPrefix, r, rng, segment, of)
}
func HashesKey(r identity.RunID, h Hashes, of HashKind) string {
	return fmt.Sprintf("%s%s/index/%06d-%06d.%s", WorkPrefix, r, h.From, h.To, of)
}
func RepeatsKey(r identity.RunID, rng int, of HashKind) string {
	return fmt.Sprintf("%s%s/index/%06d.%s", WorkPrefix, r, rng, of)
}
func RangeKey(r identity.RunID, rng int) string {
	return fmt.Sprintf("%s%s/plan/%06d.json", WorkPrefix, r, rng)
}
func IndexKey(r identity.RunID, rng int) string {
	return fmt.Sprintf("%s%s/index/%06d.json", WorkPrefix, r, rng)
}

// OutputSegmentDir is where the segments of a run's files are, while they are written.
func OutputSegmentDir(r identity.RunID) string { return fmt.Sprintf("%s%s/final/", WorkPrefix, r) }

// OutputSegmentKey is the Segment that begins with that shard.
func OutputSegmentKey(r identity.RunID, from int) string {
	return fmt.Sprintf("%ssegments/%010d.json", OutputSegmentDir(r), from)
}

// OutputSegmentRowsKey is where one execution leaves the rows of a segment that are to
// stand in the file.
func OutputSegmentRowsKey(r identity.RunID, from int, nonce, file string) string {
	return fmt.Sprintf("%srows/%010d-%s.%s", OutputSegmentDir(r), from, nonce, file)
}

// HashKind is what lines are compared by. Example: "ids".
type HashKind string

// What lines are compared by.
const (
	HashIDs      HashKind = "ids"      // their own ids: a line that repeats one is an error
	HashRequests HashKind = "requests" // what they ask: a line that repeats it is a copy
)

// shardsPerFolder is how many shards share a folder: where a bucket is a folder
// tree, each new folder costs two synced writes, and many entries slow one down.
const shardsPerFolder = 1000

// ShardObjectKey is where an attempt's result or checkpoint goes, create-only:
// work/<run>/shards/<n div 1000>/<n>-<attempt>-<nonce>.
func ShardObjectKey(r identity.RunID, shard int, attempt uint64, nonce string) string {
	return fmt.Sprintf("%s%s/shards/%d/%d-%d-%s", WorkPrefix, r, shard/shardsPerFolder, shard, attempt, nonce)
}

// OutputKey is a file that users read, such as runs/<run>/completions.jsonl.
func OutputKey(r identity.RunID, name string) string { return RunsPrefix + string(r) + "/" + name }

// Names of the files of a run.
const (
	CompletionsFile = "completions.jsonl"
	ErrorsFile      = "errors.jsonl"
	SummaryFile     = "summary.json"
)

// RunFromKey returns the run id at the end of a key like run/<run>.
func RunFromKey(key string) (identity.RunID, bool) {
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
		return fault.WithKind(fault.Corrupt, err, "decode %s", what)
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
			return fault.WithKind(fault.Corrupt, err, "decode %s", what)
		}
		if version > Schema {
			return &fault.Error{Kind: fault.Invalid, Op: "decode " + what, Remedy: "upgrade this rollout",
				Err: fault.New(fault.Invalid, "it is of schema %d, this version reads up to %d", version, Schema)}
		}
		return nil
	}
	return nil // what is no object is found out when it is decoded
}
