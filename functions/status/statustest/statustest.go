// Package statustest holds the runs and workers that the tests of package
// status, and of the packages above it, start from.
package statustest

import (
	"time"

	"rollout/functions/status"
	"rollout/shared/cloud"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/interval"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/record"
)

// The ids of two runs.
const (
	RunA = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVE")
	RunB = identity.RunID("01JD2ZQ4T5W0M1X9YB7R3K8CVF")
)

// Noon is when the runs are created.
var Noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Manifest is that of a batch run for the pool "default".
func Manifest(id identity.RunID) record.Manifest {
	return record.Manifest{
		Schema: record.Schema, Run: id, Name: "nightly", Kind: "batch", CreatedAt: Noon,
		Inputs:   []record.Input{{Key: "prompts/nightly.jsonl", Version: "v1", Size: 10}},
		ModelURI: "mock", Pool: "default",
	}
}

// InCloud is the profile of a provider that rents machines.
func InCloud() cloud.Profile {
	return cloud.Profile{
		Capabilities: cloud.Capabilities{ManagedFleet: true, DeclaredQueues: true},
		Hints: cloud.Hints{
			PickupTime:    30 * time.Second,
			Start:         "read the functions' logs",
			Workers:       func(pool string) string { return "ask the provider about the machines of " + pool },
			Replacement:   "other machines start while there is work",
			PendingUpload: "its event takes seconds",
		},
	}
}

// Midway is RunA with 1,000 items in 10 shards, 4 of which are done, and one
// worker that holds 3. It was saved 40 s after Noon.
func Midway() status.Progress {
	st := run.New(RunA)
	st.Phase, st.Items, st.Shards, st.Complete, st.NextShard = run.Running, 1000, 10, true, 8
	st.Done = run.CommitLog{Set: interval.Of(interval.Range{Lo: 0, Hi: 4})}
	st.Counts = shard.Counts{OK: 390, Failed: 10, ByClass: map[string]int{"invalid_line": 7, "too_long": 3},
		PromptTokens: 4000, CompletionTokens: 8000, WastedTokens: 12}
	st.StartedAt, st.SavedAt = Noon.Add(time.Second), Noon.Add(40*time.Second)
	return status.Progress{Hints: cloud.OneMachine().Hints, Manifest: Manifest(RunA), State: st,
		Workers: []status.WorkerStatus{Worker(4, 5, 6)}}
}

// Worker is a living worker "w" that holds shards of RunA, each half answered,
// and has not reported a rate.
func Worker(shards ...int) status.WorkerStatus {
	w := status.WorkerStatus{Worker: "w", Pool: "default", State: health.Ready, Alive: true, Engine: status.EngineReady,
		InFlight: 64, StartedAt: Noon.Add(35 * time.Second)}
	for _, n := range shards {
		w.Holds = append(w.Holds, health.HeldShard{Run: RunA, Shard: n, Attempt: 1, Items: 100, Rows: 50})
	}
	return w
}
