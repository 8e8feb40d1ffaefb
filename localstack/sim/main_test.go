package sim

import (
	"os"
	"runtime/debug"
	"testing"
)

// TestMain lets the heap of the small worlds grow before it is collected: a third of the
// simulation's time went into collecting it.
func TestMain(m *testing.M) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	os.Exit(m.Run())
}
