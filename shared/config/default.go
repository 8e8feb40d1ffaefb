package config

import "time"

// The kinds of run that this version has.
const (
	KindBatch = "batch" // prompts, each answered
	KindTrain = "train" // a training on the rows of the file
)

// EngineMock is the engine that needs no model.
const EngineMock = "mock"

// EngineTiny is the engine with a model of its own, ModelTiny.
const EngineTiny = "tiny"

// DefaultRun returns a batch with nothing set by its user: 256 items a shard,
// 10 s grace, 3 failures an item, 64 GiB of unpacked input.
func DefaultRun() Run {
	return Run{
		SchemaVersion: SchemaVersion,
		Kind:          KindBatch,
		Input:         Input{MaxUnpacked: 64 << 30},
		Shard:         DefaultShard(),
		Limits:        DefaultLimits(),
	}
}

// DefaultShard returns 256 items.
func DefaultShard() Shard { return Shard{Items: 256} }

// DefaultLimits returns no deadline, no token budget, 10 s grace and 3
// failures.
func DefaultLimits() Limits { return Limits{Grace: Duration(10 * time.Second), Failures: 3} }

// DefaultDeployment returns the installation of a laptop: bucket "local", no
// pools, no engine; those come from flags or the file, else from the model that
// is built in.
func DefaultDeployment() Deployment {
	return Deployment{
		SchemaVersion: SchemaVersion,
		Bucket:        "local",
		Health:        DefaultHealth(),
		Worker:        DefaultWorker(),
		Defaults:      DefaultRun(),
	}
}

// DefaultHealth returns the timings of embedded workers: a heartbeat every
// 500 ms, self-fencing after 4 s, failure after 5 s, 250 ms of clock skew.
func DefaultHealth() Health {
	return Health{
		Interval:       Duration(500 * time.Millisecond),
		SelfFence:      Duration(4 * time.Second),
		FailureTimeout: Duration(5 * time.Second),
		SkewBudget:     Duration(250 * time.Millisecond),
	}
}

// DefaultWorker returns 4 to 512 requests in flight a server, as it makes the
// most of, checkpoints after 60 s, 120 s of silence of a request, 15 s to
// drain.
func DefaultWorker() Worker {
	return Worker{
		MinInFlight:        4,
		MaxInFlight:        512,
		CheckpointInterval: Duration(60 * time.Second),
		ProgressTimeout:    Duration(120 * time.Second),
		DrainBudget:        Duration(15 * time.Second),
	}
}

// DefaultInfer returns one worker and the defaults of runs and deployments.
func DefaultInfer() Infer {
	return Infer{
		SchemaVersion: SchemaVersion,
		Workers:       InferWorkers{Count: 1},
		Shard:         DefaultShard(),
		Limits:        DefaultLimits(),
		Health:        DefaultHealth(),
		Worker:        DefaultWorker(),
	}
}
