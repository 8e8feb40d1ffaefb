package process

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"runtime"

	"rollout/gpuworker/engine/observed"
	"rollout/gpuworker/executors/infer"
	"rollout/gpuworker/executors/train"
	"rollout/gpuworker/worker"
	"rollout/shared/core/health"
	"rollout/shared/snapshot"
)

// workload is what the workers of a process do: one executor, and what their
// heartbeats tell of it.
type workload interface {
	executor(ctx context.Context) worker.Executor // of one worker
	inFlight() int
	engineOn(machine string) string // names the engine that workers share; "" is none
	servers() []health.Server
	follow(ctx context.Context, w *worker.Worker) // as long as the worker lives
}

// job returns what the pool's workers do, and how to end it.
func (o Options) job(ctx context.Context) (workload, func(), error) {
	if p, _ := o.Deployment.TrainPool(); p.Name == o.Pool {
		return trains{o}, func() {}, nil
	}
	var err error
	if o.Deployment.Worker, err = withinFiles(o.Deployment.Worker, len(o.Deployment.Engine.Servers())); err != nil {
		return nil, nil, err
	}
	e, err := Engine(ctx, o.Deployment, o.Secrets, o.Ports.Log)
	if err != nil {
		return nil, nil, err
	}
	limits, _ := e.(limiter)
	meterServers(e, o.Ports)
	return answers{watchedEngine{observed.New(e, o.Deployment.Engine.String(), o.Ports), limits}, o}, func() { _ = e.Close() }, nil
}

// answers asks an engine.
type answers struct {
	watchedEngine
	o Options
}

func (a answers) executor(ctx context.Context) worker.Executor {
	w := a.o.Deployment.Worker
	return infer.New(infer.Config{Engine: a.watchedEngine, Model: onlyModel(a.o.Deployment, a.o.Pool), Clock: a.o.Ports.Clock, Log: a.o.Ports.Log, OnItem: samples(ctx, a.o.Ports),
		ProgressTimeout: w.ProgressTimeout.Std(), RequestTimeout: w.RequestTimeout.Std(), MaxOutage: patience})
}

func (a answers) inFlight() int { return a.watchedEngine.inFlight(a.o.Deployment.Worker) }

func (a answers) engineOn(machine string) string { return shared(a.o.Deployment.Engine, machine) }

// trains trains in this process, one training at a time, with all processors.
type trains struct{ o Options }

func (t trains) executor(context.Context) worker.Executor {
	p := t.o.Ports
	return train.New(train.Config{Blobs: p.Blobs, Snapshots: snapshot.Store{Blobs: p.Blobs, Docs: p.Docs, Clock: p.Clock}, Clock: p.Clock, Log: p.Log,
		Scratch: cmp.Or(t.o.Scratch, filepath.Join(os.TempDir(), "rollout-scratch")), Threads: runtime.GOMAXPROCS(0)})
}

func (t trains) inFlight() int { return 1 }

func (t trains) engineOn(string) string { return "" }

func (t trains) servers() []health.Server { return nil }

func (t trains) follow(context.Context, *worker.Worker) {}
