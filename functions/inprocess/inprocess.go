// Package inprocess runs all functions in one process, on the events, timers
// and queues that clouds would call them with: at least once, in any order.
//
//	uploads ─▶ submit ─▶ tasks ─▶ plan, finalize
//	               coordinate queue ─▶ coordinate      timer ─▶ reclaim
//
// It is wiring: it receives, calls a handler, acknowledges. It holds no state
// of any run, and any number of processes may run it over the same stores.
package inprocess

import (
	"context"
	"sync"
	"time"

	"rollout/functions/coordinate"
	"rollout/functions/finalize"
	"rollout/functions/plan"
	"rollout/functions/reclaim"
	"rollout/functions/submit"
	"rollout/shared/blob"
	"rollout/shared/cloud"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
)

// Config says what to run.
type Config struct {
	Deployment config.Deployment
	// Uploads are the objects created in the bucket; nil if nobody watches it.
	Uploads <-chan blob.Info
	// OnOpen is called with every open run that something is heard of; it must not
	// block. May be nil.
	OnOpen func(record.Manifest)
	// PlanConcurrency is how many ranges are cut at once; 2 if unset.
	PlanConcurrency int
	// Segments, if not nil, has runs planned by turns and the files of large ones
	// written in segments, as in clouds; else files are written behind the commit
	// frontier.
	Segments *finalize.SegmentOptions
	// BatchDelay is how long coordinate lets events gather; 50 ms if unset.
	BatchDelay time.Duration
}

// System is all functions of one process.
type System struct {
	host.Ports
	cfg        Config
	submit     *submit.Submitter
	plan       *plan.Planner
	coordinate *coordinate.Coordinator
	finalize   *finalize.Finalizer
	reclaim    *reclaim.Reclaimer
	visibility time.Duration // of messages being handled

	followers followers
}

// dispatchConcurrency is how many tasks are handled at once. They mostly wait for
// synced writes, which many callers share.
const dispatchConcurrency = 8

// New wires the functions over the ports.
func New(p host.Ports, cfg Config) *System {
	if cfg.PlanConcurrency == 0 {
		cfg.PlanConcurrency = 2
	}
	if cfg.BatchDelay == 0 {
		cfg.BatchDelay = 50 * time.Millisecond
	}
	t := host.Timings(cfg.Deployment.Health)
	ix, shared := input.NewIndex(p.Blobs, p.Docs), cfg.Segments != nil
	s := &System{Ports: p, cfg: cfg,
		submit:     submit.New(p, cfg.Deployment, cloud.Capabilities{}),
		plan:       plan.New(p, plan.Options{Leases: shared}),
		finalize:   finalize.New(p, ix, finalize.Options{Segments: cfg.Segments}),
		reclaim:    reclaim.New(p, t),
		visibility: t.Visibility(),
		followers:  followers{byRun: map[identity.RunID]*follower{}},
	}
	s.coordinate = coordinate.New(p, ix, coordinate.Options{
		Timings: t, Grace: cfg.Deployment.Defaults.Limits.Grace.Std(), Shared: shared,
		Hooks: coordinate.Hooks{OnSaved: s.onSaved, OnOpen: cfg.OnOpen},
	})
	return s
}

// Submitter returns the submit function, for callers that pin inputs
// themselves.
func (s *System) Submitter() *submit.Submitter { return s.submit }

// Run runs the functions until ctx ends.
func (s *System) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { s.watchUploads(ctx) })
	all.Go(func() { s.runFollowers(ctx) })
	all.Go(func() { s.runCoordinate(ctx) })
	all.Go(func() { s.runReclaim(ctx) })
	for range dispatchConcurrency {
		all.Go(func() { s.consume(ctx, host.TaskQueue, s.dispatch) })
	}
	for range s.cfg.PlanConcurrency {
		all.Go(func() { s.consume(ctx, host.PlanQueue, s.dispatch) })
	}
	all.Wait()
	return nil
}
