package events

// Names of observability events: lines of a run's event stream for users and
// dashboards. No part of rollout acts on them.
const (
	ObserveRunSubmitted = "run_submitted" // a manifest was written
	ObserveRunRefused   = "run_refused"   // an upload cannot be a run
	ObserveRunPlanned   = "run_planned"   // all shards are known
	ObserveRunPhase     = "run_phase"     // the run's phase changed
	ObserveRunEnded     = "run_ended"     // summary.json is written

	ObserveShardClaimed    = "shard_claimed"
	ObserveShardCheckpoint = "shard_checkpoint"
	ObserveShardDone       = "shard_done"
	ObserveShardLost       = "shard_lost"
	ObserveShardReleased   = "shard_released"

	ObserveSampleCompleted = "sample_completed" // one item was answered
	ObserveSampleFailed    = "sample_failed"    // one item failed
	ObserveSamplePoisoned  = "sample_poisoned"  // one item is poison

	ObserveWorkerRegistered   = "worker_registered" // first heartbeat
	ObserveWorkerHeartbeat    = "worker_heartbeat"
	ObserveWorkerDraining     = "worker_draining"
	ObserveWorkerDeregistered = "worker_deregistered" // ended in order
	ObserveWorkerFenced       = "worker_fenced"       // could not renew its heartbeat
	ObserveWorkerFailed       = "worker_failed"       // judged dead by others

	ObserveEngineStarted = "engine_started"
	ObserveEngineDied    = "engine_died"
)
