package process

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/executors/infer"
	"rollout/gpuworker/executors/pipeline"
	"rollout/gpuworker/executors/train"
	"rollout/gpuworker/grading"
	"rollout/gpuworker/online"
	"rollout/gpuworker/plugin"
	"rollout/gpuworker/worker"
	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/host"
	"rollout/shared/observe"
	"rollout/shared/snapshot"
)

// workload is what the workers of a process do.
type workload interface {
	// executor returns the executor of one worker.
	executor(ctx context.Context) worker.Executor
	// inFlight returns how many requests a worker may have in flight at first.
	inFlight() int
	// sharedEngine names the engine that workers share; "" without one.
	sharedEngine(machine string) string
	// servers returns the inference servers' status for heartbeats.
	servers() []health.Server
	// isolation returns how strictly the machine isolates programs of trials; "" if it runs none.
	isolation() string
	// online returns what answers online requests; nil if the workload answers none.
	online() online.Target
	// adjust adjusts the worker's number of requests in flight until ctx ends.
	adjust(ctx context.Context, w *worker.Worker)
}

// newWorkload returns the workload of the pool and a function that closes it.
func (o Options) newWorkload(ctx context.Context) (workload, func(), error) {
	if p, _ := o.Deployment.TrainPool(); p.Name == o.Pool {
		return trainings{o}, func() {}, nil
	}
	o.Deployment = o.Deployment.ForPool(o.Pool)
	if o.Deployment.Pool(o.Pool).Pipelined() { // instead of the servers of [engine]
		o.Deployment.Engine = o.Deployment.Engine.WithURLs([]string{config.EngineTiny})
	}
	var err error
	o.Deployment.Worker, err = withinFiles(o.Deployment.Worker, len(o.Deployment.Engine.Servers()))
	if err != nil {
		return nil, nil, err
	}
	e, pipelined, err := o.openEngine(ctx)
	if err != nil {
		return nil, nil, err
	}
	limits, _ := e.(limiter)
	plugins, err := o.openPlugins(ctx)
	if err != nil {
		_ = e.Close()
		return nil, nil, err
	}
	services, err := grading.Connect(ctx, o.Deployment.Graders, grading.Options{Secrets: o.Secrets, Log: o.Ports.Log,
		Plugins: plugins, PluginConfigs: o.Deployment.Plugins})
	if err != nil {
		return nil, nil, errors.Join(err, plugins.Close(), e.Close())
	}
	notice := newModelNotice(e, o.Deployment, o.Pool, o.Ports.Log)
	observed := observeEngine(e, o.Deployment.Engine.String(), o.Ports, notice)
	x := &atomic.Pointer[infer.Executor]{}
	limited := limitedEngine{observed, limits, notice, func() map[string]string {
		if x := x.Load(); x != nil {
			return x.SetAside()
		}
		return nil
	}}
	meterServers(limited, o.Ports)
	a := inference{limited, services, o, x, e, o.newAgents(ctx), pipelined}
	closeEngine := e.Close
	if pipelined != nil {
		closeEngine = pipelined.Close
	}
	return a, func() { _ = errors.Join(a.agents.close(), plugins.Close(), closeEngine()) }, nil
}

// openEngine returns the engine of the pool, and the pipeline behind it if it has one.
func (o Options) openEngine(ctx context.Context) (engine.Engine, *pipeline.Pipeline, error) {
	pool := o.Deployment.Pool(o.Pool)
	if !pool.Pipelined() {
		e, err := ConnectEngine(ctx, o.Deployment, o.Secrets, o.Ports.Log)
		return e, nil, err
	}
	p, err := pipeline.New(pipeline.Config{Pipeline: o.Deployment.Pipeline, Model: pool.Model, Log: o.Ports.Log})
	if err != nil {
		return nil, nil, err
	}
	return p.Engine(), p, nil
}

// maxOutage is how long an engine may be down before its shards are released for
// other workers.
const maxOutage = 10 * time.Second

// inference is the workload of a pool that answers items with an engine.
type inference struct {
	limitedEngine
	graders *grading.Services
	o       Options
	current *atomic.Pointer[infer.Executor] // of the worker that runs now
	engine  engine.Engine                   // without what observes it
	agents  agents
	// pipeline is behind the engine; nil without one.
	pipeline *pipeline.Pipeline
}

func (a inference) executor(ctx context.Context) worker.Executor {
	w, p := a.o.Deployment.Worker, a.o.Ports
	x := infer.New(infer.Config{Engine: a.limitedEngine, Model: onlyModel(a.o.Deployment, a.o.Pool), Clock: p.Clock,
		Request: a.o.Deployment.Engine.Request, Tensors: a.o.Deployment.Engine.Tensors,
		Servers: serverNames(a.o.Deployment.Engine),
		Log:     p.Log, OnItem: itemHook(ctx, p), ProgressTimeout: w.ProgressTimeout.Std(),
		RequestTimeout: w.RequestTimeout.Std(), MaxOutage: maxOutage, Graders: a.graders})
	a.current.Store(x)
	if a.pipeline != nil {
		return a.withAgents(a.pipeline.Executor(x))
	}
	return a.withAgents(x)
}

// pipelineOf returns what reports on the pipeline of a workload; nil without one.
func pipelineOf(load workload) func() *health.Pipeline {
	if a, ok := load.(inference); ok && a.pipeline != nil {
		return a.pipeline.Health
	}
	return nil
}

// serverNames returns the names of an engine's servers; nil for one in this process.
func serverNames(e config.Engine) []string {
	if e.InProcess() {
		return nil
	}
	return e.Servers()
}

func (a inference) inFlight() int { return a.limitedEngine.inFlight(a.o.Deployment.Worker) }

func (a inference) isolation() string { return a.agents.level }

func (a inference) sharedEngine(machine string) string {
	return sharedEngineName(a.o.Deployment.Engine, machine)
}

// onlyModel returns the id of the model that a pool serves, or the zero id if its
// revision is not known.
func onlyModel(d config.Deployment, pool string) identity.ContentID {
	if p := d.Pool(pool); p.Revision != "" {
		return identity.Model(p.Model, p.Revision)
	}
	return identity.ContentID{}
}

// itemHook returns the hook that emits an event for every item. Without an event
// stream it returns nil, which costs nothing.
func itemHook(ctx context.Context, p host.Ports) func(infer.Item) {
	if p.Watch.Events == nil {
		return nil
	}
	return func(it infer.Item) {
		p.Observe(ctx, observe.ItemDone{Run: it.Run, Shard: it.Shard, Item: it.Item, ID: it.ID, Class: it.Class})
	}
}

// trainings is the workload of a pool that trains: in this process, one training
// at a time, on all processors.
type trainings struct{ o Options }

func (t trainings) executor(context.Context) worker.Executor {
	p := t.o.Ports
	return train.New(train.Config{Blobs: p.Blobs, Clock: p.Clock, Log: p.Log, Threads: runtime.GOMAXPROCS(0),
		Snapshots: snapshot.Store{Blobs: p.Blobs, Docs: p.Docs, Clock: p.Clock},
		Scratch:   cmp.Or(t.o.Scratch, filepath.Join(os.TempDir(), "rollout-scratch"))})
}

func (t trainings) inFlight() int { return 1 }

func (t trainings) isolation() string { return "" }

func (t trainings) online() online.Target { return nil }

func (t trainings) sharedEngine(string) string { return "" }

func (t trainings) servers() []health.Server { return nil }

func (t trainings) adjust(context.Context, *worker.Worker) {}

// openPlugins loads the plugins of the deployment, whose paths are those of this machine.
func (o Options) openPlugins(ctx context.Context) (*plugin.Host, error) {
	return plugin.Open(ctx, o.Deployment.Plugins, plugin.Options{Builtins: o.Plugins, Log: o.Ports.Log,
		Watch: o.Ports.Watch, Sandbox: o.openSandbox, HotReload: o.HotReload})
}
