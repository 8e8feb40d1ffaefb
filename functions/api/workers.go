package api

import (
	"cmp"
	"context"
	"slices"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// WorkerStatus is what a worker says of itself, and whether that still holds.
type WorkerStatus struct {
	Worker      string             `json:"worker_id"`
	Pool        string             `json:"pool"`
	State       health.State       `json:"state"` // its own word: "ready", "draining", …
	Alive       bool               `json:"alive"` // by its heartbeat, at the time of asking
	Draining    string             `json:"draining"`
	InFlight    int                `json:"in_flight"` // requests at once, at most
	Engine      EngineState        `json:"engine"`
	Load        health.Load        `json:"load"` // what it sees of its engine
	Holds       []health.HeldShard `json:"holds"`
	Host        string             `json:"host"`
	PID         int                `json:"pid"`
	CPUs        int                `json:"cpus"`
	GPUs        int                `json:"gpus"`
	Instance    string             `json:"instance,omitempty"` // what the machine's cloud calls it
	StartedAt   time.Time          `json:"started_at"`
	HeartbeatAt time.Time          `json:"beat_at"`
	DueAt       time.Time          `json:"due_at"`
}

// EngineState is whether a worker's engine can answer. Example: "ready".
type EngineState string

// The states of an engine.
const (
	EngineStarting EngineState = "starting" // it has not answered yet that it is ready
	EngineReady    EngineState = "ready"
	EngineAway     EngineState = "away" // load.away says why
)

func engineState(b health.Heartbeat) EngineState {
	switch {
	case b.Load.UnavailableReason != "":
		return EngineAway
	case b.State == health.Init:
		return EngineStarting
	}
	return EngineReady
}

// Workers returns every worker that has a heartbeat: the living first, then by
// pool and id.
func (s *Service) Workers(ctx context.Context) ([]WorkerStatus, error) {
	beats, err := s.heartbeats(ctx)
	if err != nil {
		return nil, err
	}
	now := s.ports.Clock.Now()
	out := make([]WorkerStatus, 0, len(beats))
	for part := range slices.Chunk(beats, document.MaxKeys) {
		marks, err := s.marks(ctx, part)
		if err != nil {
			return nil, err
		}
		for i, b := range part {
			out = append(out, s.workerStatus(b, marks[i], now))
		}
	}
	slices.SortFunc(out, livingFirst)
	return out, nil
}

func livingFirst(a, b WorkerStatus) int {
	if a.Alive != b.Alive {
		if a.Alive {
			return -1
		}
		return 1
	}
	return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Worker, b.Worker))
}

func (s *Service) workerStatus(b health.Heartbeat, mark record.WorkerMark, now time.Time) WorkerStatus {
	w := WorkerStatus{
		Worker: b.Worker, Pool: b.Pool, State: b.State, Alive: !s.timings.Dead(b, now),
		Draining: mark.DrainReason, InFlight: b.MaxInFlight, Engine: engineState(b), Load: b.Load, Holds: b.Holds,
		Host: b.Host, PID: b.PID, CPUs: b.CPUs, GPUs: b.GPUs, Instance: b.Instance,
		StartedAt: b.Started.UTC(), HeartbeatAt: b.At.UTC(), DueAt: b.DueAt.UTC(),
	}
	if w.Holds == nil {
		w.Holds = []health.HeldShard{}
	}
	return w
}

// heartbeats reads every worker's heartbeat, in the order of their ids.
func (s *Service) heartbeats(ctx context.Context) ([]health.Heartbeat, error) {
	var out []health.Heartbeat
	for d, err := range document.All(ctx, s.ports.Docs, record.HeartbeatPrefix) {
		if err != nil {
			return nil, fault.Wrap(err, "list the workers")
		}
		var b health.Heartbeat
		if err := decodeDoc(d, &b); err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// marks reads what functions found out about the workers, in their order.
func (s *Service) marks(ctx context.Context, beats []health.Heartbeat) ([]record.WorkerMark, error) {
	keys := make([]string, len(beats))
	for i, b := range beats {
		keys[i] = record.WorkerKey(b.Worker)
	}
	docs, err := s.ports.Docs.GetMany(ctx, keys)
	if err != nil {
		return nil, fault.Wrap(err, "read the workers' marks")
	}
	out := make([]record.WorkerMark, len(docs))
	for i, d := range docs {
		if err := decodeDoc(d, &out[i]); err != nil {
			return nil, err
		}
	}
	return out, nil
}
