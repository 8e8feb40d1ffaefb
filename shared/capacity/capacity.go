// Package capacity is the port to the machine a worker runs on: what it has,
// and whether it is about to be taken away.
//
// Metadata addresses appear in driver code alone. An inventory without GPUs
// is never an error. Every driver passes package capacitytest.
package capacity

import (
	"context"
	"time"
)

// GPU describes one device. Drain says why the device must not get new work, or
// is empty.
type GPU struct {
	Index       int    `json:"index"`
	UUID        string `json:"uuid,omitempty"`
	Name        string `json:"name,omitempty"`
	MemoryBytes uint64 `json:"memory_bytes,omitempty"`
	DrainReason string `json:"drain,omitempty"`
}

// Inventory is what the machine has.
type Inventory struct {
	CPUs        int    `json:"cpus"`
	MemoryBytes uint64 `json:"memory_bytes"`
	GPUs        []GPU  `json:"gpus"`
	// Instance is the machine's name in its cloud; "" outside one. Example:
	// "i-0123456789abcdef0".
	Instance string `json:"instance,omitempty"`
	// Type and Class are the machine's type and how it is bought, as cost.Kind has them; ""
	// outside a cloud, or where the cloud does not tell. Examples: "g6.xlarge", "spot".
	Type  string `json:"type,omitempty"`
	Class string `json:"class,omitempty"`
	// BootedAt is when the machine was switched on; zero if that is not known.
	BootedAt time.Time `json:"booted_at,omitzero"`
}

// Notice warns that the machine ends after Lead.
type Notice struct {
	Reason string
	Lead   time.Duration
	// Advice is true if the machine only may end: the provider recommends to leave it. Most
	// such machines stay for hours.
	Advice bool
}

// Source describes a machine and delivers its preemption notices.
type Source interface {
	// Inventory returns what the machine has now.
	Inventory(ctx context.Context) (Inventory, error)
	// Notices delivers preemption notices until ctx ends, then closes.
	Notices(ctx context.Context) <-chan Notice
}
