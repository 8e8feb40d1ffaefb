// Package worker is the loop of a worker: receive, claim, acknowledge, load,
// keep the engine full, checkpoint, commit.
//
//	receive ──▶ claim (CAS) ──▶ ack ──▶ load ──▶ execute ──▶ put result ──▶ commit (CAS) ──▶ ShardDone
//	                                               │ drain, pause, end
//	                                               └──▶ checkpoint ──▶ release / seal
//
// One heartbeat document is the lease of all shards held; a worker that can't
// renew it fences itself and writes no more (I11). The loop knows no engine
// and no dialect: rows are opaque to it, an Executor makes them. It is a
// library: processes, signals and drivers are its caller's affair.
package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"rollout/shared/capacity"
	"rollout/shared/core/health"
	"rollout/shared/core/identity"
	"rollout/shared/core/lease"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// Config is a worker's settings.
type Config struct {
	ID   string // names this process's worker, never used twice
	Pool string
	// Engine names the engine among those that workers share; "" if it lives in
	// this process. Only one worker at a time tries suspects at it.
	Engine   string
	Timings  health.Timings
	InFlight int // requests at once; see SetInFlight
	// CheckpointInterval is how much unfinished work may be lost with the worker.
	CheckpointInterval time.Duration
	// Drain is how long an orderly end may take, Grace how long requests in
	// flight may go on when their run is paused or ended.
	Drain, Grace time.Duration
	Machine      record.Machine
	// LongPoll is how long a request for work waits at the queue where each of
	// them costs money, and Gather how long what is sent waits for company
	// there; 0 is where they do not.
	LongPoll, Gather time.Duration
	// Servers tells of the inference servers behind the executor, for
	// heartbeats; may be nil.
	Servers func() []health.Server
}

// Executor answers the items of shards. It is shared by all shards of a
// worker.
type Executor interface {
	// Ready returns nil when items can be answered; Unavailable if not yet.
	Ready(ctx context.Context) error
	// Run answers the shard's items that have no row yet. It returns nil when
	// all have one, or when s.Stopping() closed and those in flight are over;
	// an error if the executor itself is at fault and the shard must go back.
	Run(ctx context.Context, s *Shard) error
}

// Worker pulls and answers shards until it is drained, fenced or cancelled.
type Worker struct {
	host.Ports
	cfg    Config
	exec   Executor
	index  *input.Index
	lease  *lease.Lease
	slots  *slots
	pace   pace
	outbox outbox
	stats  stats

	drain chan struct{} // closed when the worker must end in an orderly way

	engineMutex chan struct{}   // holds a value while a shard has, or wants, the turn
	beating     chan struct{}   // holds a value during a beat: a later one never tells less
	asking      sync.Mutex      // held by who asks whether the executor is ready
	changed     []chan struct{} // one for each that pulls: get a value when it should look again

	mu        sync.Mutex
	started   time.Time
	beatRev   document.Revision
	beatSent  time.Time // the last one that was written
	trialsAt  string    // the engine that it has trials at, or wants to
	state     health.State
	held      map[shardKey]*heldShard
	last      *latch        // of the newest hold: the next one's turn comes after it
	taking    int           // messages being claimed
	unready   bool          // the executor was at fault: ask it before pulling again
	faults    int           // how often it was, since a shard was finished
	drainBy   time.Time     // when the drain's budget is used up; zero before it
	budget    time.Duration // of the drain
	manifests map[identity.RunID]record.Manifest
	controls  map[identity.RunID]controlSeen
	busyAt    time.Time // when something was in hand last
	perShard  int       // items of the last shard loaded

	work    sync.WaitGroup // messages and shards in hand
	objects atomic.Int64   // names the objects that were put
	results buffers        // results being put
	pages   buffers        // of shards' rows
}

// usualShard is how many items a shard is taken to have before one was seen:
// not fewer than most have, so that a worker does not take work from others.
const usualShard = 256

// New returns a worker. Its lease runs from now on.
func New(p host.Ports, cfg Config, ix *input.Index, exec Executor) *Worker {
	now := p.Clock.Now()
	first := newLatch()
	first.open()
	p.Log = p.Log.With(observe.KeyWorker, cfg.ID)
	return &Worker{
		Ports: p.WithSource("worker/" + cfg.ID), cfg: cfg, exec: exec, index: ix,
		lease: lease.New(cfg.Timings.SelfFence, now), slots: newSlots(cfg.InFlight), stats: stats{meter: p.Watch.Meter},
		drain: make(chan struct{}), engineMutex: make(chan struct{}, 1), beating: make(chan struct{}, 1), unready: true,
		started: now, state: health.Init, held: map[shardKey]*heldShard{}, outbox: outbox{full: make(chan struct{}, 1)},
		manifests: map[identity.RunID]record.Manifest{}, controls: map[identity.RunID]controlSeen{},
		changed: bells(len(cfg.queuePickers())), perShard: usualShard, last: first, busyAt: now,
	}
}

func bells(n int) []chan struct{} {
	out := make([]chan struct{}, n)
	for i := range out {
		out[i] = make(chan struct{}, 1)
	}
	return out
}

// Run works until the worker is drained (nil), fenced (Fenced), its executor
// is at fault for good (that error), or ctx ends (as if the process died:
// nothing more is written). Unless it lost its lease, its last beat says that
// it is gone.
func (w *Worker) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := w.writeHeartbeat(ctx); err != nil { // registers; a store that is down is found here
		return fault.Wrap(err, "register worker %s", w.cfg.ID)
	}
	w.Observe(ctx, observe.WorkerRegistered{Worker: w.cfg.ID, Pool: w.cfg.Pool, MaxInFlight: w.cfg.InFlight})

	var beats sync.WaitGroup
	beating, stopBeating := context.WithCancel(ctx)
	defer stopBeating()
	beats.Go(func() { w.heartbeatLoop(beating, cancel) })
	err := w.pullLoop(ctx)
	w.work.Wait()
	stopBeating()
	beats.Wait() // a beat under way would bring the worker back that is gone
	if ctx.Err() == nil {
		err = errors.Join(err, w.deregister(ctx))
	}
	if cause := context.Cause(ctx); ctx.Err() != nil && fault.Is(cause, fault.Fenced) {
		err = cause
	}
	return err
}

// Drain starts the worker's orderly end, and reports whether it had not begun
// before. Any number of calls are one drain.
func (w *Worker) Drain(reason string) (begins bool) { return w.drainWithin(reason, w.cfg.Drain) }

// Answered is how many items got their row from the worker.
func (w *Worker) Answered() int64 {
	w.stats.mu.Lock()
	defer w.stats.mu.Unlock()
	return w.stats.rows
}

// drainWithin is a drain that must be over after so long. One that is under way
// already goes on, faster if less time is left than it took itself. It reports
// whether this is the drain's beginning.
func (w *Worker) drainWithin(reason string, budget time.Duration) (begins bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	by := w.Clock.Now().Add(budget)
	if w.state == health.Gone || w.state == health.Draining && !by.Before(w.drainBy) {
		return false
	}
	w.drainBy, w.budget = by, budget
	for _, h := range w.held {
		h.stop(stopDrain, func() time.Duration { return w.patienceFor(h) })
	}
	if w.state == health.Draining {
		return false
	}
	w.state = health.Draining
	close(w.drain)
	w.Observe(context.Background(), observe.WorkerDraining{Worker: w.cfg.ID, Reason: reason, Shards: len(w.held)})
	return true
}

// WatchNotices drains the worker at a preemption notice of the machine, within the
// notice's lead if that is shorter than the drain's budget. Further notices are
// heeded for the time that they leave.
func (w *Worker) WatchNotices(ctx context.Context, notices <-chan capacity.Notice) {
	for {
		select {
		case <-ctx.Done():
			return
		case n, ok := <-notices:
			if !ok {
				return
			}
			w.drainWithin(n.Reason, min(w.cfg.Drain, n.Lead))
		}
	}
}

// patience is how long requests in flight may go on in a drain: the rest of
// its budget is for checkpoints.
func (w *Worker) patience() time.Duration { return w.budget * 3 / 4 }

// patienceFor is the hold's: none if none of its requests in flight will end in
// time, so that others can begin its items at once. The caller has w.mu.
func (w *Worker) patienceFor(h *heldShard) time.Duration {
	if h.work == nil {
		return 0
	}
	if h.work.trains() {
		if h.work.stopsWithin(w.patience()) {
			return w.patience()
		}
		return 0
	}
	budget, others := w.patience(), w.stats.times()
	if h.work.flights.any(w.Clock.Now(), func(elapsed time.Duration) bool { return endsWithin(others, elapsed, budget) }) {
		return budget
	}
	return 0
}

// SetInFlight changes how many requests may be in flight at once; those beyond
// that end as they would.
func (w *Worker) SetInFlight(n int) {
	w.slots.resize(n)
	w.wake()
}

// outOfTime reports whether a drain has used up its budget: what can't be kept
// by then is given up.
func (w *Worker) outOfTime() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.drainBy.IsZero() && !w.Clock.Now().Before(w.drainBy)
}

// draining reports whether the worker is on its way out.
func (w *Worker) draining() bool {
	select {
	case <-w.drain:
		return true
	default:
		return false
	}
}

// wake lets the pull loop look again.
func (w *Worker) wake() {
	for _, bell := range w.changed {
		select {
		case bell <- struct{}{}:
		default:
		}
	}
}

// mayWrite is asked before every write: a worker whose lease is over is
// fenced, whatever its clock says later.
func (w *Worker) mayWrite() error {
	if w.lease.Valid(w.Clock.Now()) {
		return nil
	}
	return fault.New(fault.Fenced, "worker %s could not renew its heartbeat for %s and writes no more", w.cfg.ID, w.cfg.Timings.SelfFence)
}
