package record

import (
	"time"

	"rollout/shared/capacity"
)

// WorkerMark is the document worker/<worker>: what functions want of a worker
// or found out about it. Functions alone write it.
type WorkerMark struct {
	Schema      int       `json:"schema"`
	Sequence    uint64    `json:"sequence"`
	DrainReason string    `json:"draining,omitempty"` // why it must drain; "" is not
	Failed      time.Time `json:"failed,omitzero"`    // when it was found dead
}

// Drain returns the mark with the worker asked to drain, and whether it was not
// before: the first reason stands.
func (m WorkerMark) Drain(reason string) (WorkerMark, bool) {
	if m.DrainReason != "" {
		return m, false
	}
	m.Schema, m.Sequence, m.DrainReason = Schema, m.Sequence+1, reason
	return m, true
}

// Fleet is the document fleet/<pool>: what the cloud says of the pool's machines.
// Functions alone write it. Nothing acts on it: it is for people who ask why no
// machine comes.
type Fleet struct {
	Schema   int       `json:"schema"`
	AbsentAt time.Time `json:"absent_at"` // when a machine could not come up last
	Absent   string    `json:"absent"`    // why, in the cloud's words
}

// Machine is the part of a beat that describes the worker's machine.
type Machine struct {
	Host string         `json:"host"`
	PID  int            `json:"pid"`
	CPUs int            `json:"cpus"`
	GPUs []capacity.GPU `json:"gpus,omitempty"`
	// Instance is what the machine's cloud calls it; "" outside one.
	Instance string `json:"instance,omitempty"`
}
