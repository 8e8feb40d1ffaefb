// Package process is a worker's life in a process: it connects an engine, runs
// the worker loop over it, and starts it again under a new name when its lease
// was lost.
//
// It is wiring over ports; which stores stand behind them is its caller's
// affair. It handles no signals: the caller closes Leave.
package process

import (
	"cmp"
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"rollout/gpuworker/worker"
	"rollout/shared/capacity"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/observe"
	"rollout/shared/record"
	"rollout/shared/secret"
)

// Options say what the worker works with.
type Options struct {
	Ports      host.Ports
	Deployment config.Deployment
	// Capabilities are those of the place where the installation is; the zero
	// value is one machine.
	Capabilities cloud.Capabilities
	Pool         string
	Secrets      secret.Store
	Machine      capacity.Source
	Scratch      string // a folder for files on their way; the machine's own if empty
	// Shutdown asks for a drain when it is closed or gets a reason.
	Shutdown <-chan string
	// IdleTimeout is how long a worker goes on without work; 0 is for ever.
	IdleTimeout time.Duration
	// RetryRegistration lets it wait from the start for a store that is away or a full
	// disk; else a worker that can't register says so and ends.
	RetryRegistration bool
}

// A worker that must not idle gives up when it could not even live for a while
// for so long.
const (
	awhile   = time.Minute
	hopeless = 20 * time.Minute
)

// rest is how long a worker that lost its lease waits before it starts anew.
const rest = time.Second

// ExitReason is how a worker's orderly end came about.
type ExitReason string

// The ends.
const (
	Requested   ExitReason = "asked" // by who runs it
	Idle        ExitReason = "idle"  // there was no work for it
	MachineLost ExitReason = "unfit" // its machine is taken away, or is not to be relied on
	// GPUFailed is that a GPU failed before anything was answered, as the next
	// machine's might for the same reason: its image's driver, say.
	GPUFailed ExitReason = "broken"
	// Unusable is that it could not work for long, as no other might on such a
	// machine.
	Unusable ExitReason = "hopeless"
)

// Run works until it is asked to leave, has no work, its machine is not to be
// used any more, ctx ends, or the engine refuses it. Without an error it was
// the end that it says.
func Run(ctx context.Context, o Options) (ExitReason, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	does, closeJob, err := o.job(ctx)
	if err != nil {
		return "", err
	}
	defer closeJob()
	machine, err := describe(ctx, o.Machine)
	if err != nil {
		return "", err
	}
	asked := listen(ctx, o.Shutdown)
	worked := time.Now() // for a while, until then
	answered := false
	for fenced := o.RetryRegistration; ; {
		began := time.Now()
		end, rows, err := once(ctx, o, asked, does, machine)
		if answered = answered || rows > 0; answered && end == GPUFailed {
			end = MachineLost
		}
		wait := rest
		if time.Since(began) > awhile {
			worked = time.Now()
		}
		switch {
		case errors.Is(err, errSkewed):
			wait = compareAgain
		case fault.Is(err, fault.Fenced):
			fenced = true
		case fenced && passes(err): // what cost it its lease is not over yet
		default:
			return end, err
		}
		if o.IdleTimeout > 0 && time.Since(worked) > hopeless {
			o.Ports.Log.ErrorContext(ctx, "the worker gives up: it could not work for long", observe.KeyError, err)
			return Unusable, nil
		}
		o.Ports.Log.WarnContext(ctx, "worker starts anew under another name", "after", err)
		select {
		case <-ctx.Done():
			return "", err
		case <-asked.leave: // it holds nothing any more
			return Requested, nil
		case <-time.After(wait):
		}
	}
}

// request is the wish that the worker leaves, for the process and each of its
// workers.
type request struct {
	leave  chan struct{} // closed when it is made
	reason string        // readable then
}

// made reports whether it is.
func (r *request) made() bool {
	select {
	case <-r.leave:
		return true
	default:
		return false
	}
}

func listen(ctx context.Context, reasons <-chan string) *request {
	r := &request{leave: make(chan struct{})}
	go func() {
		select {
		case reason := <-reasons:
			r.reason = cmp.Or(reason, "asked to leave")
			close(r.leave)
		case <-ctx.Done():
		}
	}()
	return r
}

// passes reports whether a fault ends without this process: a store that is
// away or takes too long, or a disk that somebody makes room on or writable.
func passes(err error) bool {
	return fault.Retriable(err) || fault.Is(err, fault.Exhausted) || fault.Is(err, fault.Denied) || errors.Is(err, context.DeadlineExceeded)
}

// once runs one worker, and counts what it answered.
func once(ctx context.Context, o Options, asked *request, does workload, machine record.Machine) (end ExitReason, rows int64, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w, d := o.Deployment.Worker, o.Deployment
	skew := d.Health.SkewBudget.Std()
	if err := compareClocks(ctx, o.Ports, skew); err != nil {
		return "", 0, err
	}
	loop := worker.New(o.Ports, worker.Config{
		ID: ulid.Make().String(), Pool: o.Pool, Engine: does.engineOn(machine.Host), Timings: host.Timings(d.Health), InFlight: does.inFlight(), CheckpointInterval: w.CheckpointInterval.Std(),
		Drain: w.DrainBudget.Std(), Grace: d.Defaults.Limits.Grace.Std(), Machine: machine,
		Servers: does.servers, LongPoll: o.longPoll(), Gather: o.gather(),
	}, input.NewIndex(o.Ports.Blobs, o.Ports.Docs), does.executor(ctx))
	go func() {
		select {
		case <-asked.leave:
			loop.Drain(asked.reason)
		case <-ctx.Done():
		}
	}()
	go does.follow(ctx, loop)
	var off atomic.Pointer[error]
	go watchClock(ctx, o.Ports, skew, loop, &off)
	var broken atomic.Bool // a GPU, and that is why it ends
	if o.Machine != nil {
		go loop.WatchNotices(ctx, o.Machine.Notices(ctx))
		go watchGPUs(ctx, o.Machine, o.Ports.Log, func(reason string) { broken.Store(loop.Drain(reason)) })
	}
	retired := make(chan ExitReason, 1)
	go func() { retired <- retire(ctx, loop, o.IdleTimeout) }()
	err = loop.Run(ctx)
	cancel()
	rows = loop.Answered()
	if why := off.Load(); err == nil && why != nil {
		return "", rows, *why
	}
	switch why := <-retired; {
	case err != nil:
		return "", rows, err
	case why != "":
		return why, rows, nil
	case asked.made():
		return Requested, rows, nil
	case broken.Load():
		return GPUFailed, rows, nil
	}
	return MachineLost, rows, nil
}

// onlyModel is the id of the model that a pool serves, if its revision is
// known.
func onlyModel(d config.Deployment, pool string) identity.ContentID {
	for _, p := range d.Pools {
		if p.Name == pool && p.Revision != "" {
			return identity.Model(p.Model, p.Revision)
		}
	}
	return identity.ContentID{}
}

// patience is how long an engine may be away before its shards go back to be
// answered by others.
const patience = 10 * time.Second

// NoEngine is the error of who needs an engine and was given none.
func NoEngine(who string) error {
	return &fault.Error{Kind: fault.Invalid, Op: who + " has no engine",
		Remedy: "name one with --engine, or url in [engine] of the config: the base URL of an OpenAI-compatible server (vLLM, SGLang, llama.cpp), such as http://127.0.0.1:8000/v1, or mock, which answers without a model; the model that is built in, " + config.ModelTiny + ", needs none"}
}

func describe(ctx context.Context, m capacity.Source) (record.Machine, error) {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	out := record.Machine{Host: name, PID: os.Getpid()}
	if m == nil {
		return out, nil
	}
	inv, err := m.Inventory(ctx)
	if err != nil {
		return out, fault.Wrap(err, "look at the machine")
	}
	out.CPUs, out.GPUs, out.Instance = inv.CPUs, inv.GPUs, inv.Instance
	return out, nil
}
