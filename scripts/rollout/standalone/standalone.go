// Package stack runs the whole product over one laptop installation: the
// functions in this process, and workers in it or in processes of their own.
//
// It is wiring and supervision: dead workers are started again, and an orderly
// end drains workers before the functions stop. It knows no run.
package standalone

import (
	"context"
	"errors"
	"net"
	"sync"

	"rollout/functions/api"
	"rollout/functions/inprocess"
	"rollout/gpuworker/cli"
	"rollout/gpuworker/process"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/embedded/bucket"
	"rollout/shared/embedded/local"
	"rollout/shared/host"
	"rollout/shared/listen"
	"rollout/shared/observe/meter"
	"rollout/shared/record"
	"rollout/shared/secret"
)

// Options say what to run.
type Options struct {
	Local      *local.Local
	Deployment config.Deployment // with its pools
	Secrets    secret.Store
	Watch      bool         // take up what appears in the bucket
	Listen     net.Listener // of the API; nil is none
	Token      secret.Value // of the API; empty on loopback
	Meter      *meter.Meter // told at the API; may be nil
	Workers    int          // processes; 0 is one worker in this one
	Worker     []string     // the command that runs a worker process
}

// Runtime is a running product.
type Runtime struct {
	o         Options
	ports     host.Ports
	system    *inprocess.System
	functions func() // ends them
	stopping  chan struct{}
	stop      sync.Once

	ended           chan struct{} // all workers are gone, those that train apart
	workers         sync.WaitGroup
	trainingWorkers trainingWorkers
	others          sync.WaitGroup
	mu              sync.Mutex
	err             error
}

// Start starts everything. It stops when Stop is called; ctx ends it at once,
// and so does a state that turns out to be damaged.
func Start(ctx context.Context, o Options) *Runtime {
	ctx, unguard := o.Local.State.CancelOnDamage(ctx)
	functions, cancel := context.WithCancel(ctx)
	s := &Runtime{o: o, ports: o.Local.Ports, functions: func() { cancel(); unguard() }, stopping: make(chan struct{}), ended: make(chan struct{}),
		trainingWorkers: trainingWorkers{needed: make(chan struct{}), ended: make(chan struct{})}}
	s.ports.Watch.Liveness = s.liveness()
	var uploads <-chan blob.Info
	if o.Watch {
		uploads = o.Local.Bucket.Watch(functions, record.PromptsPrefix, bucket.WatchOptions{Clock: o.Local.Ports.Clock, Logger: o.Local.Ports.Log})
	}
	s.system = inprocess.New(s.ports, inprocess.Config{Deployment: o.Deployment, Uploads: uploads, OnOpen: s.noteTraining})
	s.others.Go(func() { s.fail(s.system.Run(functions)) })
	if o.Listen != nil {
		handler := api.New(s.ports, o.Deployment).Handler(o.Token, s.probes())
		s.others.Go(func() { s.fail(listen.Serve(functions, o.Listen, handler)) })
	}
	for _, pool := range o.Deployment.InferPools() {
		s.startPool(ctx, &s.workers, pool.Name)
	}
	s.others.Go(func() { s.train(ctx) })
	go func() {
		s.workers.Wait()
		s.fail(o.Local.State.Damage()) // which ended them
		close(s.ended)
	}()
	return s
}

func (s *Runtime) startPool(ctx context.Context, workers *sync.WaitGroup, pool string) {
	if s.o.Workers == 0 {
		workers.Go(func() { s.fail(s.worker(ctx, pool)) })
		return
	}
	for range s.o.Workers {
		workers.Go(func() { s.fail(s.supervise(ctx, pool)) })
	}
}

// worker runs a worker in this process.
func (s *Runtime) worker(ctx context.Context, pool string) error {
	leave := make(chan string, 1)
	go func() {
		select {
		case <-s.stopping:
			leave <- "the installation stops"
		case <-ctx.Done():
		}
	}()
	_, err := process.Run(ctx, process.Options{Ports: s.ports, Deployment: s.o.Deployment, Pool: pool, Secrets: s.o.Secrets,
		Shutdown: leave, Machine: cli.Machine(s.o.Local.Dir, s.o.Local.Ports.Log), Scratch: cli.Scratch(s.o.Local.Dir)})
	return err
}

// System returns the functions, for callers that create runs themselves.
func (s *Runtime) System() *inprocess.System { return s.system }

// Ended is closed when no worker is left: after Stop, or when they failed for
// good.
func (s *Runtime) Ended() <-chan struct{} { return s.ended }

// Stop drains the workers, then ends the functions, and returns what failed.
// Any number of calls are one stop.
func (s *Runtime) Stop() error {
	s.halt()
	<-s.ended
	<-s.trainingWorkers.ended
	s.functions()
	s.others.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// halt lets everything end in order.
func (s *Runtime) halt() { s.stop.Do(func() { close(s.stopping) }) }

func (s *Runtime) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !errors.Is(err, context.Canceled) {
		s.err = errors.Join(s.err, err)
	}
}
