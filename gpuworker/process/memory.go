package process

import (
	"os"
	"runtime/debug"
)

// The garbage collector's settings. Heaps are small and short-lived here: to
// collect less often costs little memory and saves much time. The limit keeps a
// process within its budget when a shard has long lines.
const (
	gcPercent   = 200
	memoryLimit = 64 << 20
)

// TuneMemory configures the garbage collector of a rollout process, unless GOGC and
// GOMEMLIMIT do. Allowed is the memory that the machine or container allows, in
// bytes; 0 is unlimited.
func TuneMemory(allowed uint64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limitWithin(allowed))
	}
}

// limitWithin returns the heap's limit. It leaves a quarter of the allowed memory to
// what the collector does not count: SQLite's memory, stacks, the program itself.
func limitWithin(allowed uint64) int64 {
	if allowed == 0 || allowed/4*3 > memoryLimit {
		return memoryLimit
	}
	return int64(allowed / 4 * 3)
}
