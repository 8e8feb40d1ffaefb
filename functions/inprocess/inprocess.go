// Package inprocess runs all functions in one process. It calls them as a cloud
// would, by queues, uploads and timers: at least once, in any order.
//
//	uploads ──────────▶ tasks queue
//	tasks queue ──────▶ submit, plan, finalize    8 at once
//	plan queue ───────▶ plan (ranges)             PlanConcurrency at once; more if they are small
//	coordinate queue ─▶ coordinate                in batches
//	timer ────────────▶ reclaim                   every half heartbeat interval; for uploads, every hour
//	timer ────────────▶ reclaim (old runs)        every minute
//	timer ────────────▶ notify                    when an event is recorded, or due again
//
// For each message it takes the same steps: receive, call the handler while the
// message is kept hidden, and then acknowledge it, move it to the dead letters
// (Invalid), or return it for a later retry (any other error).
//
// While a run is going on, a follower writes its files behind the commit
// frontier; it only saves time at the end. The package holds no state of a run
// that is not in the stores, and any number of processes may run over the same
// stores.
package inprocess

import (
	"context"
	"sync"
	"time"

	"rollout/functions/coordinate"
	"rollout/functions/finalize"
	"rollout/functions/notify"
	"rollout/functions/plan"
	"rollout/functions/reclaim"
	"rollout/functions/submit"
	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/prices"
	"rollout/shared/record"
)

// Config configures a System.
type Config struct {
	Deployment config.Deployment
	// Uploads are the objects created in the bucket; nil if the bucket is not watched.
	Uploads <-chan blob.Upload
	// Moved is submit.Options.Moved of the bucket.
	Moved func(old, now string) bool
	// OnOpen is optional. It is called when an event of an open run arrives, and
	// must not block.
	OnOpen func(record.Manifest)
	// OnStopping is optional. It is called when a run begins to pause or to end, for
	// workers of this process, which learn it by their next heartbeat otherwise. It must
	// not block.
	OnStopping func(identity.RunID)
	// PlanConcurrency is how many large ranges are cut at once, and an eighth of how many
	// small ones. Default: 2.
	PlanConcurrency int
	// Segments, if not nil, makes the functions work as in clouds: they plan with
	// leases, share runs with other coordinators, and write the files of large runs
	// in segments, and keep the work files of ended runs. Otherwise files are written behind
	// the commit frontier, and work files are freed by the deployment's config.
	Segments *finalize.SegmentOptions
	// BatchDelay is how long events are collected for coordinate. Default: 50 ms.
	BatchDelay time.Duration
	Kinds      kind.Table
	// Notifier is optional. It records what happens to runs, and Run delivers it.
	Notifier *notify.Notifier
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
	freer      *reclaim.Freer // nil: work files of ended runs are kept
	visibility time.Duration  // of messages being handled
	saved      chan struct{}  // has one if a run was saved since reclaim looked

	followers followers
}

// dispatchConcurrency is how many messages of the tasks queue are handled at
// once. Handlers mostly wait for synced writes, which they share.
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
		submit: submit.New(p, submit.Options{Deployment: cfg.Deployment, Kinds: cfg.Kinds, Moved: cfg.Moved}),
		plan:   plan.New(p, plan.Options{Leases: shared, Kinds: cfg.Kinds, Bucket: cfg.Deployment.Bucket}),
		finalize: finalize.New(p, ix, finalize.Options{Segments: cfg.Segments, Kinds: cfg.Kinds, Prices: cfg.Deployment,
			OnEnded: cfg.Notifier.Finalized}),
		reclaim:    reclaim.New(p, t),
		visibility: t.Visibility(),
		saved:      make(chan struct{}, 1),
		followers:  followers{byRun: map[identity.RunID]*follower{}},
	}
	s.reclaim.NotifyWith(cfg.Notifier)
	if !shared && cfg.Deployment.Storage.KeepWork != config.KeepWorkAll {
		s.freer = reclaim.NewFreer(p)
		s.reclaim.FreeWith(s.freer)
	}
	s.coordinate = coordinate.New(p, ix, coordinate.Options{
		Timings: t, Grace: cfg.Deployment.Defaults.Limits.Grace.Std(), Shared: shared,
		Kinds: cfg.Kinds, Prices: prices.Of(cfg.Deployment.Cloud.Provider),
		Hooks: coordinate.Hooks{OnSaved: s.onSaved, OnOpen: cfg.OnOpen, OnStopping: cfg.OnStopping},
	})
	return s
}

// Submitter returns the submit function, for callers that pin their inputs
// themselves.
func (s *System) Submitter() *submit.Submitter { return s.submit }

// Run runs the functions until ctx ends.
func (s *System) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { s.watchUploads(ctx) })
	all.Go(func() { s.runFollowers(ctx) })
	all.Go(func() { s.runCoordinate(ctx) })
	all.Go(func() { s.runReclaim(ctx) })
	all.Go(func() { s.buildIndex(ctx) })
	if s.cfg.Uploads != nil {
		all.Go(func() { s.runUploadScan(ctx) })
		all.Go(func() { s.runSweep(ctx) })
	}
	if s.freer != nil {
		all.Go(func() { s.runFree(ctx) })
	}
	if s.cfg.Deployment.Storage.KeepDocuments > 0 {
		all.Go(func() { s.runExpire(ctx) })
	}
	if s.cfg.Notifier != nil {
		all.Go(func() { s.runNotify(ctx) })
	}
	for range dispatchConcurrency {
		all.Go(func() { s.consume(ctx, host.TaskQueue, s.dispatch) })
	}
	for range s.cfg.PlanConcurrency {
		all.Go(func() { s.consumeRanges(ctx) })
	}
	all.Wait()
	s.freeLast(ctx)
	s.notifyLast(ctx)
	return nil
}
