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
	memoryLimit = 96 << 20
)

// TuneMemory sets the collector up for a process of the product, unless its
// environment does.
func TuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit)
	}
}
