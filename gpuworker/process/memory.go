package process

import (
	"os"
	"runtime/debug"
)

// The collector's settings: heaps here are small and short-lived, so that
// collecting less often costs little memory and saves much time; the limit
// keeps a process within its budget when a shard holds long lines.
const (
	gcPercent   = 200
	memoryLimit = 84 << 20
)

// TuneMemory sets the collector up for a process of the product, unless its
// environment does. allowed is what its machine or container lets it have, in
// bytes; 0 is no limit.
func TuneMemory(allowed uint64) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(limitWithin(allowed))
	}
}

// limitWithin leaves a quarter of what is allowed to what the collector does
// not count: SQLite's memory, stacks, the program itself.
func limitWithin(allowed uint64) int64 {
	if allowed == 0 || allowed/4*3 > memoryLimit {
		return memoryLimit
	}
	return int64(allowed / 4 * 3)
}
