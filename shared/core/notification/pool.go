package notification

import (
	"maps"
	"time"
)

// The kinds about the machines of pools.
const (
	CapacityMissing Kind = "capacity_missing" // the cloud has no such machine free
	QuotaReached    Kind = "quota_reached"    // the account may have no more of them
	LaunchFailed    Kind = "launch_failed"    // a machine can't be started for another cause
	BootFailed      Kind = "boot_failed"      // a machine started, and no worker on it
)

// A problem that lasts is reported many times: it is told when it begins and daily while it
// lasts. Without a report for quiet it is over.
const (
	quiet    = time.Hour
	reminder = 24 * time.Hour
)

// Problem is one report of why a pool has no machine.
type Problem struct {
	Kind   Kind
	At     time.Time // of the report
	Reason string    // for people
}

// PoolMemory is what is known of a pool's problems, by kind.
type PoolMemory map[Kind]Seen

// Seen is what is known of one kind of problem.
type Seen struct {
	At     time.Time `json:"at"`   // of the latest report
	ToldAt time.Time `json:"told"` // the report that was told last
}

// Next reports whether to tell a problem, and returns the memory after that.
func (m PoolMemory) Next(p Problem) (PoolMemory, bool) {
	seen, known := m[p.Kind]
	if known && !p.At.After(seen.At) {
		return m, false
	}
	tell := !known || p.At.Sub(seen.At) >= quiet || p.At.Sub(seen.ToldAt) >= reminder
	seen.At = p.At
	if tell {
		seen.ToldAt = p.At
	}
	if m = maps.Clone(m); m == nil {
		m = PoolMemory{}
	}
	m[p.Kind] = seen
	return m, tell
}
