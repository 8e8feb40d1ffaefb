package config

import "time"

// Kinds of run.
const (
	KindBatch   = "batch"   // answers the prompts of the file
	KindRollout = "rollout" // answers each ticket of the file several times, and selects
	KindTrain   = "train"   // trains a model on the rows of the file
	KindTrials  = "trials"  // answers each task of the file under several variants, and compares them
)

// Kinds returns the kinds of run.
func Kinds() []string { return []string{KindBatch, KindRollout, KindTrain, KindTrials} }

// nounOf returns what messages call a run of the kind.
func nounOf(kind string) string {
	switch kind {
	case "":
		return KindBatch
	case KindTrials:
		return "run of trials"
	}
	return kind
}

// Engines that run inside the worker, as values of engine.url.
const (
	EngineMock = "mock" // computes its answers without a model
	EngineTiny = "tiny" // serves the built-in model ModelTiny
)

// DefaultRun returns a batch with 10 s grace, 3 failures an item and at most 64 GiB
// of unpacked input, whose shards are as large as suits its input.
func DefaultRun() Run {
	return Run{
		SchemaVersion: SchemaVersion,
		Kind:          KindBatch,
		Input:         Input{MaxUnpacked: 64 << 30},
		Shard:         DefaultShard(),
		Limits:        DefaultLimits(),
	}
}

// DefaultShard returns shards that are as large as suits the input.
func DefaultShard() Shard { return Shard{} }

// DefaultLimits returns 10 s grace and 3 failures an item, without a deadline
// and without a budget.
func DefaultLimits() Limits { return Limits{Grace: Duration(10 * time.Second), Failures: 3} }

// DefaultDeployment returns an installation on one machine with the bucket
// "local". It has no pools and no engine: flags or the file add them, and the
// fallback is the built-in model.
func DefaultDeployment() Deployment {
	return Deployment{
		SchemaVersion: SchemaVersion,
		Bucket:        "local",
		Input:         DefaultPromptsFolder(),
		Storage:       WorkStorage{KeepWork: KeepWorkIndex},
		Health:        DefaultHealth(),
		Worker:        DefaultWorker(),
		Online:        DefaultOnline(),
		Pipeline:      DefaultPipeline(),
		Notify:        DefaultNotify(),
		Defaults:      DefaultRun(),
	}
}

// DefaultPromptsFolder returns a folder whose files are complete a second after their last
// change.
func DefaultPromptsFolder() PromptsFolder { return PromptsFolder{Settle: Duration(time.Second)} }

// DefaultHealth returns the timings of workers on the installation's own
// machine: a heartbeat every 500 ms, self-fencing after 4 s, failure after 5 s,
// 250 ms of clock skew.
func DefaultHealth() Health {
	return Health{
		Interval:       Duration(500 * time.Millisecond),
		SelfFence:      Duration(4 * time.Second),
		FailureTimeout: Duration(5 * time.Second),
		SkewBudget:     Duration(250 * time.Millisecond),
	}
}

// DefaultWorker returns 4 to 512 requests in flight a server, a checkpoint every
// 60 s, a progress timeout of 120 s and a drain budget of 15 s. The worker finds
// the number of requests in flight that gives each server the most throughput.
func DefaultWorker() Worker {
	return Worker{
		MinInFlight:        4,
		MaxInFlight:        512,
		CheckpointInterval: Duration(60 * time.Second),
		ProgressTimeout:    Duration(120 * time.Second),
		DrainBudget:        Duration(15 * time.Second),
	}
}

// DefaultOnline returns half of a worker's requests at once, 64 that wait, and a wait of 30 s.
func DefaultOnline() Online {
	return Online{Share: 0.5, Queue: 64, MaxWait: Duration(30 * time.Second)}
}

// DefaultGraderService returns a scoring service that gets 16 answers a request,
// has 4 requests of a worker in flight, may take 30 s for each, is asked 9 times,
// and keeps no answer waiting for more than 5 minutes.
func DefaultGraderService() GraderService {
	return GraderService{
		Batch:       16,
		Concurrency: 4,
		Timeout:     Duration(30 * time.Second),
		Retries:     8,
		MaxWait:     Duration(5 * time.Minute),
	}
}

// DefaultPlugin returns a plugin that gets 16 answers a call, has 2 calls of a worker at once, may
// take 30 s for each, is asked 5 times, and keeps no answer waiting for more than 5 minutes.
func DefaultPlugin() Plugin {
	return Plugin{Batch: 16, Concurrency: 2, Timeout: Duration(30 * time.Second), Retries: 4,
		MaxWait: Duration(5 * time.Minute)}
}

// DefaultInfer returns one worker, with the defaults of runs and deployments.
func DefaultInfer() Infer {
	return Infer{
		SchemaVersion: SchemaVersion,
		Workers:       InferWorkers{Count: 1},
		Storage:       InferStorage{KeepWork: KeepWorkIndex},
		Shard:         DefaultShard(),
		Limits:        DefaultLimits(),
		Health:        DefaultHealth(),
		Worker:        DefaultWorker(),
	}
}

// DefaultCloudHealth returns the timings of workers on cloud machines: a
// heartbeat every 10 s, self-fencing after 40 s, failure after 60 s, 2 s of
// clock skew. They are longer than DefaultHealth's because the cloud bills the
// write of each heartbeat.
func DefaultCloudHealth() Health {
	return Health{
		Interval:       Duration(10 * time.Second),
		SelfFence:      Duration(40 * time.Second),
		FailureTimeout: Duration(60 * time.Second),
		SkewBudget:     Duration(2 * time.Second),
	}
}
