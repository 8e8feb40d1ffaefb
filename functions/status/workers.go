package status

import (
	"cmp"
	"context"
	"slices"
	"time"

	"rollout/shared/core/cost"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// WorkerStatus is what a worker reports in its heartbeat, and whether it is
// alive.
type WorkerStatus struct {
	Worker   string             `json:"worker_id"`
	Pool     string             `json:"pool"`
	State    health.State       `json:"state"`     // as the worker reports it: "ready", "draining", …
	Alive    bool               `json:"alive"`     // by its heartbeat, when the status was read
	Draining string             `json:"draining"`  // why a function asked it to drain; "" if none did
	InFlight int                `json:"in_flight"` // the limit of concurrent requests
	Engine   EngineState        `json:"engine"`
	Load     health.Load        `json:"load"` // what the worker observes of its engine
	Holds    []health.HeldShard `json:"holds"`
	// Control is the newest control sequence that it has applied, by held run.
	Control  map[identity.RunID]uint64 `json:"-"`
	Online   *health.Online            `json:"online,omitempty"` // nil if it takes no online requests
	Host     string                    `json:"host"`
	PID      int                       `json:"pid"`
	CPUs     int                       `json:"cpus"`
	GPUs     int                       `json:"gpus"`
	Instance string                    `json:"instance,omitempty"` // the machine's name in its cloud
	// Isolation is how strictly it isolates the agents of trials: "full", "trusted" or "refused"; ""
	// if it runs none.
	Isolation string `json:"isolation,omitempty"`
	// Kind is the machine's type and class, PricePerHour what it costs in an hour, in dollars,
	// and Unclaimed its time that no run has; zero where machines have no price.
	Kind         string    `json:"machine_kind,omitempty"`
	PricePerHour float64   `json:"usd_per_hour,omitempty"`
	Unclaimed    cost.Use  `json:"unclaimed,omitzero"`
	StartedAt    time.Time `json:"started_at"`
	HeartbeatAt  time.Time `json:"beat_at"`
	DueAt        time.Time `json:"due_at"` // of the next heartbeat
}

// HeldOf is how many shards of the run the worker holds.
func (w WorkerStatus) HeldOf(id identity.RunID) (n int) {
	for _, h := range w.Holds {
		if h.Run == id {
			n++
		}
	}
	return n
}

// EngineState is whether a worker's engine can answer. Example: "ready".
type EngineState string

// The states of an engine.
const (
	EngineStarting EngineState = "starting" // it has not reported ready yet
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

// AliveIn reports whether a worker of the pool is alive; "" stands for any pool.
func AliveIn(workers []WorkerStatus, pool string) bool {
	return slices.ContainsFunc(workers, func(w WorkerStatus) bool {
		return w.Alive && (pool == "" || w.Pool == pool)
	})
}

// Workers returns every worker that has a heartbeat: living workers first, then
// by pool and id.
func (r *Reader) Workers(ctx context.Context) ([]WorkerStatus, error) {
	heartbeats, err := r.heartbeats(ctx)
	if err != nil {
		return nil, err
	}
	now := r.ports.Clock.Now()
	out := make([]WorkerStatus, 0, len(heartbeats))
	for part := range slices.Chunk(heartbeats, document.MaxKeys) {
		marks, err := r.marks(ctx, part)
		if err != nil {
			return nil, err
		}
		for i, b := range part {
			out = append(out, r.workerStatus(b, marks[i], now))
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

func (r *Reader) workerStatus(b health.Heartbeat, mark record.WorkerMark, now time.Time) WorkerStatus {
	w := WorkerStatus{
		Worker: b.Worker, Pool: b.Pool, State: b.State, Alive: !r.timings.Dead(b, now),
		Draining: mark.DrainReason, InFlight: b.MaxInFlight, Engine: engineState(b), Load: b.Load, Holds: b.Holds,
		Control: b.Control, Online: b.Online,
		Host: b.Host, PID: b.PID, CPUs: b.CPUs, GPUs: b.GPUs, Instance: b.Instance, Isolation: b.Isolation,
		Kind: b.Kind, PricePerHour: b.Price, Unclaimed: b.Unclaimed,
		StartedAt: b.Started.UTC(), HeartbeatAt: b.At.UTC(), DueAt: b.DueAt.UTC(),
	}
	if w.Holds == nil {
		w.Holds = []health.HeldShard{}
	}
	return w
}

// heartbeats reads every worker's heartbeat, in the order of their ids.
func (r *Reader) heartbeats(ctx context.Context) ([]health.Heartbeat, error) {
	var out []health.Heartbeat
	for d, err := range document.All(ctx, r.ports.Docs, record.HeartbeatPrefix) {
		if err != nil {
			return nil, fault.Wrap(err, "list the workers")
		}
		var b health.Heartbeat
		if err := decodeDoc(d, &b); err != nil {
			return nil, err
		}
		if b.Boot == nil { // of a worker
			out = append(out, b)
		}
	}
	return out, nil
}

// marks reads what functions have noted about the workers, in the same order.
func (r *Reader) marks(ctx context.Context, heartbeats []health.Heartbeat) ([]record.WorkerMark, error) {
	keys := make([]string, len(heartbeats))
	for i, b := range heartbeats {
		keys[i] = record.WorkerKey(b.Worker)
	}
	docs, err := r.ports.Docs.GetMany(ctx, keys)
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
