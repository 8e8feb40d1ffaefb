package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"rollout/shared/core/cost"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/ratelimit"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// Config is a worker's settings.
type Config struct {
	// ID names the worker. It belongs to one process and is never used again.
	ID   string
	Pool string
	// Engine names the engine, if workers share it; "" if it lives in this
	// process. Of the workers that name the same engine, one at a time asks
	// items on probation.
	Engine   string
	Timings  health.Timings
	InFlight int // requests at once; see SetInFlight
	// CheckpointInterval bounds the work that is lost if the worker dies.
	CheckpointInterval time.Duration
	// Drain bounds the time of a drain. Grace bounds how long requests in
	// flight may go on after their run was paused or ended.
	Drain, Grace time.Duration
	// DrainOnAdvice drains the worker also when the provider recommends to leave the machine.
	DrainOnAdvice bool
	Machine       record.Machine
	// Price is what the machine costs in an hour, in dollars. Its time is counted if
	// Machine.Kind is known.
	Price float64
	// TokenPrices are what the tokens of the engine cost.
	TokenPrices cost.TokenPrices
	// LongPoll is how long a request for messages waits at the queue, and Gather
	// how long outgoing acks and events wait for more to share their request.
	// Set both where each queue request costs money; 0 elsewhere.
	LongPoll, Gather time.Duration
	// Servers returns the status of the inference servers behind the executor,
	// for heartbeats. Nil if there is nothing to report.
	Servers func() []health.Server
	// Pipeline returns how the executor's group of processes works, for heartbeats. Nil
	// without one.
	Pipeline func() *health.Pipeline
	// Limit is what the workers of the pool may ask in a minute, together. A part that is
	// 0 sets no limit.
	Limit ratelimit.Amount
	// LearnLimits has the workers keep to the limits as well that the server states, or
	// that its refusals show: see Permit.Report.
	LearnLimits bool
	// Online says which online requests the worker takes beside its shards; see AcquireOnline.
	Online Online
	Kinds  kind.Table
}

// Executor answers the items of shards. All shards of a worker share it, so
// that its methods are called concurrently.
type Executor interface {
	// Ready returns nil if items can be answered now, and Unavailable if they
	// may be later. Denied and Invalid end the worker.
	Ready(ctx context.Context) error
	// Run answers the shard's items that have no row yet. It returns nil when
	// all items have one, or when s.Stopping is closed and the requests in
	// flight are over. An error means that the executor is at fault: the shard
	// is released for others.
	Run(ctx context.Context, s *Shard) error
}

// Worker pulls and answers shards until it is drained, fenced or cancelled. All
// methods are safe for concurrent use; call Run once.
type Worker struct {
	host.Ports
	cfg    Config
	exec   Executor
	index  *input.Index
	lease  *lease
	slots  *slots
	pace   pace
	outbox outbox
	stats  stats

	limiter *limiter // nil if there is no limit and none is learnt
	costs   costEstimate
	machine *machine // nil if the machine's time is not counted

	drain chan struct{} // closed when a drain begins

	engineMutex   chan struct{}   // holds a value while a shard has or awaits the engine's lock
	heartbeatLock chan struct{}   // holds a value during a write, so that writes are in order
	restEnds      chan struct{}   // a value makes the heartbeat loop look again at when it is due
	sharesDue     chan struct{}   // likewise for the loop of shares
	readyMu       sync.Mutex      // held while the executor is asked whether it is ready
	wakeups       []chan struct{} // one for each puller; a value makes it look again

	mu              sync.Mutex
	started         time.Time
	heartbeatRev    document.Revision
	heartbeatSent   time.Time // of the last one that was written
	probationEngine string    // the engine whose lock this worker has or wants; "" if none
	state           health.State
	held            map[shardKey]*heldShard
	heldRuns        map[identity.RunID]heldRun // those of the held shards
	pool            poolRuns
	claiming        int           // messages being claimed
	unready         bool          // the executor failed, or was not asked yet: ask it before pulling
	failures        int           // of the executor, since a shard was committed
	drainBy         time.Time     // when the drain's budget is used up; zero before a drain
	drainBudget     time.Duration // of the drain
	runs            map[identity.RunID]runInfo
	controls        map[identity.RunID]controlSeen
	lastBusy        time.Time // when the worker last held or received something
	perShard        int       // items of the last shard loaded

	onlineWork sync.WaitGroup  // online requests that wait or are in flight
	onlineEnds context.Context // ends when a drain has no more time for online requests
	endOnline  context.CancelFunc

	work          sync.WaitGroup // messages and shards in hand
	objects       atomic.Int64   // numbers the objects that were put
	resultBuffers buffers
	pageBuffers   buffers
}

// defaultShardItems is how many items a shard is assumed to have before one was
// loaded. It is not lower than usual, so that a new worker does not claim more
// shards than it needs.
const defaultShardItems = 256

// New returns a worker. Its lease counts from now.
func New(p host.Ports, cfg Config, ix *input.Index, exec Executor) *Worker {
	now := p.Clock.Now()
	p.Log = p.Log.With(observe.KeyWorker, cfg.ID)
	onlineEnds, endOnline := context.WithCancel(context.Background())
	w := &Worker{
		Ports: p.WithSource("worker/" + cfg.ID), cfg: cfg, exec: exec, index: ix,
		lease: newLease(cfg.Timings.SelfFence, now), slots: newSlots(cfg.InFlight, p.Clock.Now),
		outbox: outbox{flushNow: make(chan struct{}, 1)}, stats: stats{meter: p.Watch.Meter},
		limiter: newLimiter(cfg, p.Clock.Now),
		costs:   costEstimate{tokenEstimate: newTokenEstimate()},
		machine: newMachine(cfg, p.Clock.Now),
		drain:   make(chan struct{}), engineMutex: make(chan struct{}, 1), heartbeatLock: make(chan struct{}, 1),
		restEnds: make(chan struct{}, 1), sharesDue: make(chan struct{}, 1), wakeups: newWakeups(len(cfg.queuePickers())),
		started: now, state: health.Init, held: map[shardKey]*heldShard{},
		heldRuns: map[identity.RunID]heldRun{}, unready: true,
		runs: map[identity.RunID]runInfo{}, controls: map[identity.RunID]controlSeen{},
		lastBusy: now, perShard: defaultShardItems, onlineEnds: onlineEnds, endOnline: endOnline,
	}
	w.slots.online = newOnlineSlots(cfg.Online.Share)
	return w
}

func newWakeups(n int) []chan struct{} {
	out := make([]chan struct{}, n)
	for i := range out {
		out[i] = make(chan struct{}, 1)
	}
	return out
}

// Run works until the worker has drained. It returns nil then, the Fenced fault
// if the lease was lost, and the executor's fault if the executor can't work at
// all. If ctx ends, Run writes nothing more, as if the process had died.
// Otherwise the last heartbeat has the state gone, unless the lease was lost.
func (w *Worker) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := w.writeHeartbeat(ctx); err != nil { // registers the worker; finds a store that is down
		return fault.Wrap(err, "register worker %s", w.cfg.ID)
	}
	w.Observe(ctx, observe.WorkerRegistered{Worker: w.cfg.ID, Pool: w.cfg.Pool, MaxInFlight: w.cfg.InFlight})

	var heartbeats sync.WaitGroup
	heartbeatCtx, stopHeartbeats := context.WithCancel(ctx)
	defer stopHeartbeats()
	heartbeats.Go(func() { w.heartbeatLoop(heartbeatCtx, cancel) })
	heartbeats.Go(func() { w.sharesLoop(heartbeatCtx) })
	if w.limiter != nil {
		heartbeats.Go(func() { w.limitLoop(heartbeatCtx) })
	}
	err := w.pullLoop(ctx)
	w.work.Wait()
	if err == nil && w.draining() {
		w.drainOnline(ctx)
	}
	stopHeartbeats()
	heartbeats.Wait() // a heartbeat under way would overwrite the last one, which says gone
	if ctx.Err() == nil {
		w.returnShare(ctx)
		err = errors.Join(err, w.deregister(ctx))
	}
	if cause := context.Cause(ctx); ctx.Err() != nil && fault.Is(cause, fault.Fenced) {
		err = cause
	}
	return err
}

// Answered returns how many items got their row from this worker.
func (w *Worker) Answered() int64 {
	w.stats.mu.Lock()
	defer w.stats.mu.Unlock()
	return w.stats.total.rows
}

// SetInFlight changes how many requests may be in flight at once. Requests
// beyond a lower limit run to their end.
func (w *Worker) SetInFlight(n int) {
	w.slots.resize(n)
	w.wake()
}

// wake makes the pull loop check again whether it wants messages.
func (w *Worker) wake() {
	for _, c := range w.wakeups {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// mayWrite returns Fenced if the lease is over. Every write is preceded by it.
// A lost lease never comes back, whatever the clock says later.
func (w *Worker) mayWrite() error {
	if w.lease.valid(w.Clock.Now()) {
		return nil
	}
	return fault.New(fault.Fenced, "worker %s could not renew its heartbeat for %s and stops writing",
		w.cfg.ID, w.cfg.Timings.SelfFence)
}
