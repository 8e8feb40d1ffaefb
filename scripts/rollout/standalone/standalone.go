// Package standalone runs the whole product over one installation on this machine: the functions in this process, and
// the workers in this process or in processes of their own.
//
// It wires and supervises. It restarts workers that crash; an orderly stop drains the workers before it ends the
// functions. Callers start it with Start and end it with Stop; runs enter through the bucket or through System. The
// package knows nothing about single runs.
package standalone

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"rollout/functions/api"
	"rollout/functions/inprocess"
	"rollout/functions/join"
	"rollout/functions/notify"
	"rollout/functions/online"
	"rollout/functions/openai"
	"rollout/gpuworker/plugin"
	"rollout/gpuworker/process"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/embedded/bucket"
	"rollout/shared/host"
	"rollout/shared/installation"
	"rollout/shared/listen"
	"rollout/shared/observe"
	"rollout/shared/observe/meter"
	"rollout/shared/observe/probes"
	"rollout/shared/record"
	"rollout/shared/secret"
)

// Options say what to run.
type Options struct {
	Local      *installation.Local
	Deployment config.Deployment // complete, with its pools
	Secrets    secret.Store
	Watch      bool            // submit files that appear in the bucket
	Listen     net.Listener    // of the API; nil disables the API
	Token      secret.Value    // of the API; may be empty on a loopback address
	Join       *Joining        // serves workers on other machines; nil does not
	NoWorkers  bool            // run no worker here: those that join answer
	Meter      *meter.Meter    // metrics that the API serves; may be nil
	Plugins    plugin.Registry // compiled into this program; may be nil
	HotReload  bool            // load plugins again when their files change
	Workers    int             // worker processes of each pool; 0 runs one worker of each pool in this process
	Worker     []string        // command line of a worker process, without --pool
	// WorkerOutput returns where a worker process writes; it is called once for each. Nil stands for this process's own
	// streams, as do nil writers.
	WorkerOutput func() (stdout, stderr io.Writer)
}

// Joining serves workers that join from other machines.
type Joining struct {
	Server   *join.Server
	Listener net.Listener
}

// Runtime is the running product.
type Runtime struct {
	o            Options
	ports        host.Ports
	system       *inprocess.System
	endFunctions func()
	stopping     chan struct{} // closed by requestStop
	stopOnce     sync.Once

	workers         sync.WaitGroup // inference workers
	ended           chan struct{}  // closed when all inference workers have ended
	trainingWorkers trainingWorkers
	others          sync.WaitGroup
	mu              sync.Mutex // guards err and runsStopping
	err             error
	runsStopping    []chan identity.RunID // one for each worker in this process
}

// Start starts the functions, the API and the workers. Stop ends them in order. The end of ctx, or damage of the
// state, ends them at once.
func Start(ctx context.Context, o Options) *Runtime {
	ctx, unguard := o.Local.State.CancelOnDamage(ctx)
	functions, cancel := context.WithCancel(ctx)
	r := &Runtime{
		o:               o,
		ports:           o.Local.Ports,
		endFunctions:    func() { cancel(); unguard() },
		stopping:        make(chan struct{}),
		ended:           make(chan struct{}),
		trainingWorkers: trainingWorkers{needed: make(chan struct{}), ended: make(chan struct{})},
	}
	r.ports.Watch.Liveness = r.liveness()
	var uploads <-chan blob.Upload
	if o.Watch {
		uploads = o.Local.Bucket.Watch(functions, record.PromptsPrefix,
			bucket.WatchOptions{Clock: o.Local.Ports.Clock, Logger: o.Local.Ports.Log})
	}
	r.system = inprocess.New(r.ports, inprocess.Config{Deployment: o.Deployment, Uploads: uploads, Moved: bucket.Moved,
		OnOpen: r.noteTraining, OnStopping: r.tellWorkers,
		Notifier: notify.ForDeployment(r.ports, o.Deployment, o.Secrets)})
	r.others.Go(func() { r.fail(r.system.Run(functions)) })
	if o.Listen != nil {
		service := api.New(r.ports, o.Deployment, cloud.OneMachine())
		handler := service.Handler(o.Token, r.probes(), openai.New(r.ports, o.Deployment, service).Mount(),
			r.onlineDoor().Mount(), service.Uploads(), service.Stream(functions))
		r.others.Go(func() { r.fail(listen.Serve(functions, o.Listen, handler)) })
	}
	if o.Join != nil {
		r.others.Go(func() { r.fail(o.Join.Server.Serve(functions, o.Join.Listener)) })
	}
	for _, pool := range o.Deployment.InferPools() {
		r.startPool(ctx, &r.workers, pool.Name)
	}
	r.others.Go(func() { r.train(ctx) })
	go func() {
		r.workers.Wait()
		r.fail(o.Local.State.Damage()) // the reason, if damage ended them
		close(r.ended)
	}()
	return r
}

// onlineDoor returns what passes online requests to the workers.
func (r *Runtime) onlineDoor() *online.Door {
	if r.o.Meter == nil { // a nil *Meter in the interface would not be nil
		return online.New(r.ports, r.o.Deployment, nil)
	}
	return online.New(r.ports, r.o.Deployment, r.o.Meter)
}

// sockets returns the folder of the sockets for online requests; "" if no client can make any.
func (r *Runtime) sockets() string {
	if r.o.Listen == nil {
		return ""
	}
	return installation.SocketDir(r.o.Local.Dir)
}

// liveness returns the liveness of the workers in this process.
func (r *Runtime) liveness() *observe.Liveness {
	workers := 0
	if r.o.Workers == 0 && !r.o.NoWorkers {
		workers = len(r.o.Deployment.InferPools())
	}
	return observe.NewLiveness(r.ports.Clock, r.o.Deployment.Health.SelfFence.Std(), workers)
}

// probes returns the probes and the metrics that the API serves about this process.
func (r *Runtime) probes() probes.Probes {
	p := probes.Probes{Ping: r.ports.Docs.Ping, Liveness: r.ports.Watch.Liveness}
	if m := r.o.Meter; m != nil {
		names := []string{host.CoordinateQueue, host.TaskQueue, host.PlanQueue}
		for _, pool := range r.o.Deployment.InferPools() {
			names = append(names, host.WorkQueue(pool.Name), host.UrgentQueue(pool.Name))
		}
		m.TrackQueueDepths(r.ports.Queues, names...)
		p.Metrics = m.Handler()
	}
	return p
}

// startPool starts the workers of a pool.
func (r *Runtime) startPool(ctx context.Context, workers *sync.WaitGroup, pool string) {
	if r.o.NoWorkers {
		workers.Go(func() { // the product runs on without one
			select {
			case <-r.stopping:
			case <-ctx.Done():
			}
		})
		return
	}
	if r.o.Workers == 0 {
		workers.Go(func() { r.fail(r.worker(ctx, pool)) })
		return
	}
	for range r.o.Workers {
		workers.Go(func() { r.fail(r.supervise(ctx, pool)) })
	}
}

// worker runs a worker in this process until Stop or the end of ctx.
func (r *Runtime) worker(ctx context.Context, pool string) error {
	shutdown := make(chan string, 1)
	go func() {
		select {
		case <-r.stopping:
			shutdown <- "the installation stops"
		case <-ctx.Done():
		}
	}()
	_, err := process.Run(ctx, process.Options{
		Ports:      r.ports,
		Deployment: r.o.Deployment,
		Pool:       pool,
		Secrets:    r.o.Secrets,
		Shutdown:   shutdown,
		Stopping:   r.followStops(),
		Machine:    installation.Machine(r.o.Local.Dir, r.o.Local.Ports.Log),
		Scratch:    installation.ScratchDir(r.o.Local.Dir),
		Sockets:    r.sockets(),
		Plugins:    r.o.Plugins,
		HotReload:  r.o.HotReload,
		Private:    []string{r.o.Local.Dir},
	})
	return err
}

// maxStops is how many runs a worker may be behind in reading their controls. It reads the others by its heartbeat.
const maxStops = 64

// followStops returns a channel that gets the runs that begin to pause or to end.
func (r *Runtime) followStops() <-chan identity.RunID {
	runs := make(chan identity.RunID, maxStops)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runsStopping = append(r.runsStopping, runs)
	return runs
}

// tellWorkers tells the workers of this process that a run begins to pause or to end.
func (r *Runtime) tellWorkers(run identity.RunID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, runs := range r.runsStopping {
		select {
		case runs <- run:
		default:
		}
	}
}

// System returns the functions, for callers that create runs themselves.
func (r *Runtime) System() *inprocess.System { return r.system }

// Ended returns a channel that closes when all inference workers have ended: after Stop, or because they failed
// permanently.
func (r *Runtime) Ended() <-chan struct{} { return r.ended }

// Stop drains the workers, then ends the functions. It returns what failed while the product ran. It may be called
// several times and concurrently.
func (r *Runtime) Stop() error {
	r.requestStop()
	<-r.ended
	<-r.trainingWorkers.ended
	r.endFunctions()
	r.others.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// requestStop asks all workers to drain. It returns at once.
func (r *Runtime) requestStop() { r.stopOnce.Do(func() { close(r.stopping) }) }

// fail records err, unless it is nil or a cancellation.
func (r *Runtime) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !errors.Is(err, context.Canceled) {
		r.err = errors.Join(r.err, err)
	}
}
