package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"rollout/shared/core/cost"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// shardKey identifies a shard among all runs.
type shardKey struct {
	run   identity.RunID
	shard int
}

// heldShard is one claim of one shard. It exists from just before the claim is
// written until the shard is committed, sealed or released.
type heldShard struct {
	shardKey
	runInfo
	attempt uint64
	control controlSeen     // before the claim
	work    *Shard          // nil until loaded
	earlier <-chan struct{} // closed when the run's shard claimed before has begun all items
	begun   *latch          // opens when this one has, or will begin no more
	// allowance is what the shard may spend in all its attempts; zero without a budget.
	allowance cost.Spend

	// The document as this claim wrote it last. Only the goroutine that handles
	// the message touches doc and rev.
	doc shard.Doc
	rev document.Revision

	span observe.Span // from the claim to the end of this hold

	mu       sync.Mutex
	mode     stopMode
	stopping chan struct{}
	abort    context.CancelFunc // cancels requests in flight; nil until executing
	timer    *time.Timer        // calls abort
	abortAt  time.Time          // when the timer fires
	budget   time.Duration      // for requests in flight
}

// stopMode says why a shard begins no more items. A later mode overrides an
// earlier one.
type stopMode int

const (
	goOn       stopMode = iota
	stopUsedUp          // its allowance is used up: checkpoint, hand back
	stopFailed          // an item failed in a run that ends with that: checkpoint, release
	stopDrain           // the worker drains: checkpoint, release
	stopPause           // the run pauses: checkpoint, release
	stopEnd             // the run ends: checkpoint, seal
)

func stopFor(d record.Desired) stopMode {
	if d == record.DesiredEnd {
		return stopEnd
	}
	return stopPause
}

// stop makes the shard begin nothing more. Requests in flight may go on for
// budgetOf(), or for the rest of an earlier call's budget if that is less.
// budgetOf may look at the requests in flight: it is called after stopping is
// closed, when none is added.
func (h *heldShard) stop(m stopMode, budgetOf func() time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mode == goOn {
		close(h.stopping)
	}
	budget := budgetOf()
	switch {
	case h.mode == goOn:
		h.budget = budget
		h.startTimer()
	case h.timer == nil:
		h.budget = min(h.budget, budget)
	case time.Now().Add(budget).Before(h.abortAt):
		h.timer.Reset(budget)
		h.abortAt = time.Now().Add(budget)
	}
	h.mode = max(h.mode, m)
}

// executing says that requests may be in flight from now on, and that abort
// cancels them.
func (h *heldShard) executing(abort context.CancelFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.abort = abort
	if h.mode != goOn {
		h.startTimer()
	}
}

// startTimer starts the abort timer, once and only while executing. The caller
// holds h.mu.
func (h *heldShard) startTimer() {
	if h.abort != nil && h.timer == nil {
		h.timer, h.abortAt = time.AfterFunc(h.budget, h.abort), time.Now().Add(h.budget)
	}
}

// executed says that no requests are in flight any more.
func (h *heldShard) executed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.timer != nil {
		h.timer.Stop()
	}
}

func (h *heldShard) stopped() stopMode {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mode
}

func (h *heldShard) holder(worker string) shard.Holder {
	return shard.Holder{Worker: worker, Attempt: h.attempt}
}

// startShardSpan starts the shard's span, with the claim that began at claimed
// as its first child. It returns the context of the work on the shard.
func (w *Worker) startShardSpan(ctx context.Context, h *heldShard, claimed time.Time) context.Context {
	ctx, h.span = w.StartSpan(ctx, claimed, "shard", h.run, slog.Int(observe.KeyShard, h.shard),
		slog.Uint64(observe.KeyAttempt, h.attempt), slog.String(observe.KeyWorker, w.cfg.ID))
	_, claim := w.Watch.Tracer.StartChild(ctx, claimed, "claim")
	claim.End(nil)
	return ctx
}

// claimInfo describes the claim in observed events.
func (w *Worker) claimInfo(h *heldShard) observe.Claim {
	return observe.Claim{Run: h.run, Shard: h.shard, Attempt: h.attempt, Worker: w.cfg.ID}
}

// grace is how long requests in flight may go on after the run was paused or
// ended.
func (w *Worker) grace(m record.Manifest) time.Duration {
	if g := m.Config.Limits.Grace.Std(); g > 0 {
		return g
	}
	return w.cfg.Grace
}

// latch is a channel that may be closed any number of times.
type latch struct {
	once sync.Once
	ch   chan struct{}
}

func newLatch() *latch { return &latch{ch: make(chan struct{})} }

func (l *latch) open() { l.once.Do(func() { close(l.ch) }) }
