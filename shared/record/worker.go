package record

import (
	"time"

	"rollout/shared/capacity"
	"rollout/shared/core/cost"
)

// WorkerMark is the document worker/<worker>: what functions request of a worker or
// found out about it. Only functions write it.
type WorkerMark struct {
	Schema      int       `json:"schema"`
	Sequence    uint64    `json:"sequence"`
	DrainReason string    `json:"draining,omitempty"` // why the worker must drain; "" if it need not
	Failed      time.Time `json:"failed,omitzero"`    // when the worker was found dead
}

// Drain returns the mark with a request to drain, and true. If the worker is asked
// to drain already, it returns the mark unchanged, and false: the first reason
// stands.
func (m WorkerMark) Drain(reason string) (WorkerMark, bool) {
	if m.DrainReason != "" {
		return m, false
	}
	m.Schema, m.Sequence, m.DrainReason = Schema, m.Sequence+1, reason
	return m, true
}

// Machine is the part of a heartbeat that describes the worker's machine.
type Machine struct {
	Host     string         `json:"host"`
	PID      int            `json:"pid"`
	CPUs     int            `json:"cpus"`
	GPUs     []capacity.GPU `json:"gpus,omitempty"`
	Instance string         `json:"instance,omitempty"` // the cloud's name of the machine; "" outside a cloud
	// Kind is what the machine costs by; zero if that is not known. Launched is when the
	// machine was started for this worker; zero if it was there before. Workers is how many
	// workers share it; 0 is one.
	Kind     cost.Kind `json:"kind,omitzero"`
	Launched time.Time `json:"launched,omitzero"`
	Workers  int       `json:"workers,omitempty"`
	// Isolation is health.Heartbeat.Isolation.
	Isolation string `json:"isolation,omitempty"`
}
