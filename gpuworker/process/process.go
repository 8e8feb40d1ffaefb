// Package process runs a worker in a process: it connects the engine, runs the
// worker loop over it, and starts a new worker under another name after one has
// lost its lease.
//
// Run takes ports, a deployment and a channel that asks for a drain, and returns
// why the worker ended. ConnectEngine and ResolveEngine turn a config into an
// engine. NotifyShutdown turns signals into the channel; Run itself handles none.
// The package opens no store, and decides nothing about work.
package process

import (
	"cmp"
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"rollout/gpuworker/plugin"
	"rollout/gpuworker/worker"
	"rollout/shared/capacity"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/cost"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/observe"
	"rollout/shared/prices"
	"rollout/shared/record"
	"rollout/shared/secret"
)

// Options are what a worker works with.
type Options struct {
	Ports      host.Ports
	Deployment config.Deployment
	// Capabilities are those of the place where the installation is; the zero
	// value is one machine.
	Capabilities cloud.Capabilities
	Pool         string
	Secrets      secret.Store
	Machine      capacity.Source // may be nil
	// SharedBy is how many workers share the machine; 0 is one. Fresh says that the machine was
	// switched on for this worker, which is the first one since.
	SharedBy int
	Fresh    bool
	Scratch  string // a folder for temporary files; "" is the system's
	// Plugins are those that are compiled into the program. HotReload replaces plugins of the
	// deployment when their files change.
	Plugins   plugin.Registry
	HotReload bool
	// Private are the paths of files and folders that no agent may see, wherever they stand:
	// of the installation, its config and its keys.
	Private []string
	// Sockets is a folder for the socket at which the process takes online requests; ""
	// takes none.
	Sockets string
	// Shutdown asks for a drain when it is closed or gets a reason.
	Shutdown <-chan string
	// Stopping names runs whose control document was changed by this process to a pause
	// or an end, so that the worker reads it at once. Nil: by its next heartbeat.
	Stopping <-chan identity.RunID
	// IdleTimeout is how long a worker without work goes on; 0 is forever.
	IdleTimeout time.Duration
	// RetryRegistration makes the first worker wait for a store that is down or a
	// disk that is full. Without it, a worker that can't register ends with the
	// error.
	RetryRegistration bool
}

// A worker with an idle timeout ends as Unusable if no attempt has lasted for
// minAttempt within maxUnusable.
const (
	minAttempt  = time.Minute
	maxUnusable = 20 * time.Minute
)

// restartWait is the wait between a worker that lost its lease and the next.
const restartWait = time.Second

// Run works until it is asked to drain, has no work, the machine must not be used
// any more, ctx ends, or the engine denies the worker. It returns the reason of an
// orderly end, or an error.
func Run(ctx context.Context, o Options) (ExitReason, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	load, closeLoad, err := o.newWorkload(ctx)
	if err != nil {
		return "", err
	}
	defer closeLoad()
	machine, err := o.describeMachine(ctx)
	if err != nil {
		return "", err
	}
	machine.Isolation = load.isolation()
	at, endOnline := o.serveOnline(ctx, load)
	defer endOnline()
	shutdown := awaitShutdown(ctx, o.Shutdown)
	lastGood := time.Now() // the end of the last attempt that lasted
	answered := false
	for fenced := o.RetryRegistration; ; {
		began := time.Now()
		end, rows, err := runOnce(ctx, o, shutdown, load, machine, at)
		if answered = answered || rows > 0; answered && end == GPUFailed {
			end = MachineLost
		}
		wait := restartWait
		if time.Since(began) > minAttempt {
			lastGood = time.Now()
		}
		switch {
		case errors.Is(err, errSkewed):
			wait = clockRecheckEvery
		case fault.Is(err, fault.Fenced):
			fenced = true
		case fenced && isTransient(err): // the reason for the lost lease persists
		default:
			return end, err
		}
		if o.IdleTimeout > 0 && time.Since(lastGood) > maxUnusable {
			o.Ports.Log.ErrorContext(ctx, "worker gives up after 20 minutes without a working attempt", observe.KeyError, err)
			return Unusable, nil
		}
		o.Ports.Log.WarnContext(ctx, "worker restarts under another name", "after", err)
		if !errors.Is(err, errSkewed) { // else there was no worker yet
			machine.Launched = time.Time{} // the first worker has counted the boot
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-shutdown.requested: // there is nothing to drain
			return Requested, nil
		case <-time.After(wait):
		}
	}
}

// shutdownRequest is the request to drain, shared by the process's workers.
type shutdownRequest struct {
	requested chan struct{} // closed when it is made
	reason    string        // valid after that
}

// made reports whether the request was made.
func (r *shutdownRequest) made() bool {
	select {
	case <-r.requested:
		return true
	default:
		return false
	}
}

func awaitShutdown(ctx context.Context, reasons <-chan string) *shutdownRequest {
	r := &shutdownRequest{requested: make(chan struct{})}
	go func() {
		select {
		case reason := <-reasons:
			r.reason = cmp.Or(reason, "asked to drain")
			close(r.requested)
		case <-ctx.Done():
		}
	}()
	return r
}

// isTransient reports whether a fault may end without a restart of this process:
// a store that is down or slow, or a disk that is full or read-only.
func isTransient(err error) bool {
	return fault.Retriable(err) || fault.Is(err, fault.Exhausted) || fault.Is(err, fault.Denied) ||
		errors.Is(err, context.DeadlineExceeded)
}

// runOnce runs one worker to its end. It returns the reason or the error, and how
// many rows the worker has made.
func runOnce(ctx context.Context, o Options, shutdown *shutdownRequest, load workload, machine record.Machine,
	at onlineDoor) (end ExitReason, rows int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cfg, d := o.Deployment.Worker, o.Deployment
	kind, price := prices.Machine(d, o.Pool, machine.Kind)
	tokens := d.ForPool(o.Pool).Engine
	machine.Kind = kind
	skew := d.Health.SkewBudget.Std()
	if err := compareClocks(ctx, o.Ports, skew); err != nil {
		return "", 0, err
	}
	w := worker.New(o.Ports, worker.Config{
		ID: ulid.Make().String(), Pool: o.Pool, Engine: load.sharedEngine(machine.Host), InFlight: load.inFlight(),
		Timings: host.Timings(d.Health), CheckpointInterval: cfg.CheckpointInterval.Std(),
		Drain: cfg.DrainBudget.Std(), Grace: d.Defaults.Limits.Grace.Std(), Machine: machine, Price: price,
		TokenPrices: cost.TokenPrices{Prompt: tokens.PromptPrice, Completion: tokens.CompletionPrice},
		Servers:     load.servers, Pipeline: pipelineOf(load), LongPoll: o.longPoll(), Gather: o.gather(),
		Limit: limitOf(d.Pool(o.Pool)), LearnLimits: d.LearnsLimits(o.Pool, o.Capabilities.ManagedFleet),
		DrainOnAdvice: d.Pool(o.Pool).DrainOnRebalance, Online: at.settings(d.Online),
	}, input.NewIndex(o.Ports.Blobs, o.Ports.Docs), load.executor(ctx))
	go func() {
		select {
		case <-shutdown.requested:
			w.Drain(shutdown.reason)
		case <-ctx.Done():
		}
	}()
	go readControls(ctx, w, o.Stopping)
	go load.adjust(ctx, w)
	var clockErr atomic.Pointer[error]
	go watchClock(ctx, o.Ports, skew, w, &clockErr)
	var gpuFailed atomic.Bool // and that started the drain
	if o.Machine != nil {
		go w.WatchNotices(ctx, o.Machine.Notices(ctx))
		go watchGPUs(ctx, o.Machine, o.Ports.Log, func(reason string) { gpuFailed.Store(w.Drain(reason)) })
	}
	idle := make(chan ExitReason, 1)
	go func() { idle <- drainWhenIdle(ctx, w, o.IdleTimeout) }()
	at.setWorker(w)
	err = w.Run(ctx)
	at.setWorker(nil)
	cancel()
	rows = w.Answered()
	if skewErr := clockErr.Load(); err == nil && skewErr != nil {
		return "", rows, *skewErr
	}
	switch reason := <-idle; {
	case err != nil:
		return "", rows, err
	case reason != "":
		return reason, rows, nil
	case shutdown.made():
		return Requested, rows, nil
	case gpuFailed.Load():
		return GPUFailed, rows, nil
	}
	return MachineLost, rows, nil
}

// readControls has the worker read the control documents of the runs.
func readControls(ctx context.Context, w *worker.Worker, runs <-chan identity.RunID) {
	for {
		select {
		case run := <-runs:
			w.ReadControl(ctx, run)
		case <-ctx.Done():
			return
		}
	}
}

// describeMachine returns the machine as heartbeats report it.
func (o Options) describeMachine(ctx context.Context) (record.Machine, error) {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	out := record.Machine{Host: name, PID: os.Getpid(), Workers: o.SharedBy}
	if o.Machine == nil {
		return out, nil
	}
	inv, err := o.Machine.Inventory(ctx)
	if err != nil {
		return out, fault.Wrap(err, "read the machine's inventory")
	}
	out.CPUs, out.GPUs, out.Instance = inv.CPUs, inv.GPUs, inv.Instance
	out.Kind = cost.Kind{Type: inv.Type, Class: inv.Class}
	if o.Fresh {
		out.Launched = inv.BootedAt
	}
	return out, nil
}
