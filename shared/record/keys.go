package record

import (
	"fmt"
	"strconv"
	"strings"

	"rollout/shared/core/identity"
)

// Prefixes of the bucket.
const (
	PromptsPrefix = "prompts/" // inputs: users write them
	WorkPrefix    = "work/"    // plan and shard results; expires
	RunsPrefix    = "runs/"    // output files: users read them
	PendingPrefix = "pending/" // uploads that will get a name by content
	ModelsPrefix  = "models/"  // copies of models; see shared/models
)

// Prefixes of documents that are listed.
const (
	ManifestPrefix  = "run/"
	OpenRunPrefix   = "open/"
	HeartbeatPrefix = "beat/"
	FoundPrefix     = "found/"
)

// OwnerKey is the key of the object that says which installation owns the bucket, and
// InstallationKey that of the document with the installation's id; see package ownership.
const (
	OwnerKey        = "rollout-installation.json"
	InstallationKey = "installation/id"
)

// UploadScanKey is the key of the UploadScan. Only reclaim writes it.
const UploadScanKey = "uploads/scan"

// LimitPrefix is the prefix of the documents that divide a pool's limits. Only workers
// write them.
const LimitPrefix = "limit/"

// Prefixes of the documents about workers that join over the network. Only package join of the
// functions reads and writes them.
const (
	JoinPrefix       = "join/"
	JoinTokenPrefix  = JoinPrefix + "token/"
	JoinMemberPrefix = JoinPrefix + "member/"
)

// Keys of documents.
func ManifestKey(r identity.RunID) string    { return ManifestPrefix + string(r) }
func OpenRunKey(r identity.RunID) string     { return OpenRunPrefix + string(r) }
func FoundKey(upload identity.RunID) string  { return FoundPrefix + string(upload) }
func ControlKey(r identity.RunID) string     { return "control/" + string(r) }
func CoordinatorKey(r identity.RunID) string { return "coordinator/" + string(r) }
func PlanKey(r identity.RunID) string        { return "plan/" + string(r) }
func PlanLeaseKey(r identity.RunID) string   { return "plan/" + string(r) + "/turn" }
func HeartbeatKey(worker string) string      { return HeartbeatPrefix + worker }
func WorkerKey(worker string) string         { return "worker/" + worker }
func FleetKey(pool string) string            { return "fleet/" + pool }
func ShareKey(pool string) string            { return "share/" + pool }
func LimitKey(pool string) string            { return LimitPrefix + pool }

// UnpackedKey returns the key of the unpacked copy of an input.
func UnpackedKey(r identity.RunID, input int) string {
	return fmt.Sprintf("%s%s/input/%06d", WorkPrefix, r, input)
}

// AppendedKey returns the key of an object that a run's kind appended to the plan,
// by its number behind the run's inputs.
func AppendedKey(r identity.RunID, input int) string {
	return fmt.Sprintf("%s%s/range/%06d", WorkPrefix, r, input)
}

// MoreTasksKey returns the key of the tasks that a child adds to trials.
func MoreTasksKey(r identity.RunID) string {
	return fmt.Sprintf("%s%s/input/tasks.jsonl", WorkPrefix, r)
}

// JobKey returns the key of a training's Job.
func JobKey(r identity.RunID) string { return fmt.Sprintf("%s%s/input/job.jsonl", WorkPrefix, r) }

// TrainingFileKey returns the key of a TrainedFile with that content.
func TrainingFileKey(r identity.RunID, content string) string {
	return fmt.Sprintf("%s%s/files/%s", WorkPrefix, r, content)
}

// ShardTableKey returns the key of the shard table of a range.
func ShardTableKey(r identity.RunID, rng int) string {
	return fmt.Sprintf("%s%s/plan/%06d.cuts", WorkPrefix, r, rng)
}

// RangeKey returns the key of the RangeResult of a range.
func RangeKey(r identity.RunID, rng int) string {
	return fmt.Sprintf("%s%s/plan/%06d.json", WorkPrefix, r, rng)
}

// PlanHashesKey returns the key of one of the sorted hash lists of a range that
// is not merged yet. It is not about an OutputSegment.
func PlanHashesKey(r identity.RunID, rng, segment int, of HashKind) string {
	return fmt.Sprintf("%s%s/plan/%06d-%03d.%s", WorkPrefix, r, rng, segment, of)
}

// IndexKey returns the key of the IndexEntry of a range.
func IndexKey(r identity.RunID, rng int) string {
	return fmt.Sprintf("%s%s/index/%06d.json", WorkPrefix, r, rng)
}

// HashesKey returns the key of a hash list of merged ranges.
func HashesKey(r identity.RunID, h Hashes, of HashKind) string {
	return fmt.Sprintf("%s%s/index/%06d-%06d.%s", WorkPrefix, r, h.From, h.To, of)
}

// RepeatsKey returns the key of the repeats of a merged range.
func RepeatsKey(r identity.RunID, rng int, of HashKind) string {
	return fmt.Sprintf("%s%s/index/%06d.%s", WorkPrefix, r, rng, of)
}

// PrunedKey returns the key of the PrunedVariant.
func PrunedKey(r identity.RunID, variant uint32) string {
	return fmt.Sprintf("%s%s/pruned/%d.json", WorkPrefix, r, variant)
}

// LookKey returns the key of the Look with that number.
func LookKey(r identity.RunID, look int) string {
	return fmt.Sprintf("%s%s/looks/%02d.json", WorkPrefix, r, look)
}

// LookScoresKey returns the key of the sums of scores that a look has left for the next one.
func LookScoresKey(r identity.RunID, look int) string {
	return fmt.Sprintf("%s%s/looks/%02d.scores", WorkPrefix, r, look)
}

// HashKind is what lines are compared by. Example: "ids".
type HashKind string

// The kinds of hashes.
const (
	HashIDs      HashKind = "ids"      // of explicit ids: a line with an earlier line's id is an error
	HashRequests HashKind = "requests" // of requests: a line with an earlier line's request is a copy
)

// shardsPerFolder is how many shards share a folder. In a bucket that is a folder
// tree, each new folder costs two synced writes, and many entries slow a folder
// down.
const shardsPerFolder = 1000

// ShardObjectKey returns the key of a result or checkpoint of an attempt, which is
// written create-only: work/<run>/shards/<n div 1000>/<n>-<attempt>-<nonce>.
func ShardObjectKey(r identity.RunID, shard int, attempt uint64, nonce string) string {
	return fmt.Sprintf("%s%s/shards/%d/%d-%d-%s", WorkPrefix, r, shard/shardsPerFolder, shard, attempt, nonce)
}

// OutputSegmentDir returns the prefix of the segments of a run's output files.
func OutputSegmentDir(r identity.RunID) string { return fmt.Sprintf("%s%s/final/", WorkPrefix, r) }

// OutputSegmentKey returns the key of the OutputSegment that begins with shard
// from.
func OutputSegmentKey(r identity.RunID, from int) string {
	return fmt.Sprintf("%ssegments/%010d.json", OutputSegmentDir(r), from)
}

// OutputSegmentRowsKey returns the key of a segment's rows for one output file. The
// nonce is of the execution that writes them.
func OutputSegmentRowsKey(r identity.RunID, from int, nonce, file string) string {
	return fmt.Sprintf("%srows/%010d-%s.%s", OutputSegmentDir(r), from, nonce, file)
}

// FileEntriesKey returns the key of the entries of a run's output files: where the
// rows of each shard are. Finalize writes it.
func FileEntriesKey(r identity.RunID) string { return OutputSegmentDir(r) + entriesFile }

// entriesFile is the last part of the key of file entries.
const entriesFile = "entries"

// OutputSegmentEntriesKey returns the key of the entries of a segment's shards.
func OutputSegmentEntriesKey(r identity.RunID, from int, nonce string) string {
	return OutputSegmentRowsKey(r, from, nonce, entriesFile)
}

// FactsMarkDir returns the prefix of the marks of a run's files of facts.
func FactsMarkDir(r identity.RunID) string { return OutputSegmentDir(r) + "facts/" }

// FactsMarkKey returns the key of the mark which says that the file of facts of the shards
// from from to to, to excluded, is written. Finalize creates it behind the file, without
// content. Marks sort by their shards.
func FactsMarkKey(r identity.RunID, from, to int) string {
	return fmt.Sprintf("%s%010d-%010d", FactsMarkDir(r), from, to)
}

// InheritedKey returns the key of what a child has of each shard from its parent.
func InheritedKey(r identity.RunID) string { return fmt.Sprintf("%s%s/inherited", WorkPrefix, r) }

// OutputKey returns the key of an output file, such as
// runs/<run>/completions.jsonl.
func OutputKey(r identity.RunID, name string) string { return RunsPrefix + string(r) + "/" + name }

// FactsKey returns the key of a Parquet file of a run's facts, by its number from 0 on:
// runs/<run>/facts/part-00000000.parquet.
func FactsKey(r identity.RunID, part int) string {
	return OutputKey(r, fmt.Sprintf("facts/part-%08d.parquet", part))
}

// Names of the output files of every run.
const (
	CompletionsFile = "completions.jsonl"
	ErrorsFile      = "errors.jsonl"
	SummaryFile     = "summary.json"
)

// Names of further output files of a training.
const (
	ModelFile = "model.safetensors"
	CurveFile = "loss.svg"
)

// RunFromKey returns the run id at the end of a key of the form <prefix>/<run>, and
// whether it is valid.
func RunFromKey(key string) (identity.RunID, bool) {
	_, id, _ := strings.Cut(key, "/")
	r := identity.RunID(id)
	return r, r.Valid()
}

// ShardObjectsDir returns the prefix of the results and checkpoints of a run's shards.
func ShardObjectsDir(r identity.RunID) string { return fmt.Sprintf("%s%s/shards/", WorkPrefix, r) }

// ShardOfObject returns the shard that an object with a ShardObjectKey of the run is of; ok is
// false for any other object.
func ShardOfObject(r identity.RunID, key string) (shard int, ok bool) {
	rest, ok := strings.CutPrefix(key, ShardObjectsDir(r))
	if !ok {
		return 0, false
	}
	folder, name, _ := strings.Cut(rest, "/")
	number, _, ok := strings.Cut(name, "-")
	shard, err := strconv.Atoi(number)
	return shard, ok && err == nil && shard >= 0 && folder == strconv.Itoa(shard/shardsPerFolder)
}

// TrainingFilesDir returns the prefix of the files that a training leaves; see TrainedFile.
func TrainingFilesDir(r identity.RunID) string { return fmt.Sprintf("%s%s/files/", WorkPrefix, r) }

// PlanDirs returns the prefixes of the objects of a run's plan. Besides hash lists, these are
// what every reader of the plan needs.
func PlanDirs(r identity.RunID) [2]string {
	return [...]string{fmt.Sprintf("%s%s/plan/", WorkPrefix, r), fmt.Sprintf("%s%s/index/", WorkPrefix, r)}
}

// IsHashList reports whether an object of a run's plan is a list of hashes: one with a
// PlanHashesKey or a HashesKey. Repeats are none.
func IsHashList(r identity.RunID, key string) bool {
	for _, dir := range PlanDirs(r) {
		name, ok := strings.CutPrefix(key, dir)
		if !ok {
			continue
		}
		numbers, of, _ := strings.Cut(name, ".")
		return strings.Contains(numbers, "-") && (of == string(HashIDs) || of == string(HashRequests))
	}
	return false
}
