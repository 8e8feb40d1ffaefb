package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/observe"
	"rollout/shared/record"
)

// shardKey names a shard among all runs.
type shardKey struct {
	run   identity.RunID
	shard int
}

// heldShard is one claim of one shard, from just before the claim's write until the
// shard is committed or given back.
type heldShard struct {
	shardKey
	manifest record.Manifest
	attempt  uint64
	work     *Shard          // nil until loaded
	earlier  <-chan struct{} // the turn of the shard claimed before is over
	begun    *latch          // ours is: all items were begun, or never will be

	// The document as this hold wrote it last. Only the hold's own goroutine
	// touches it.
	doc shard.Doc
	rev document.Revision

	span observe.Span // of the shard, from the claim to its end here

	mu       sync.Mutex
	mode     stopMode
	stopping chan struct{}
	abort    context.CancelFunc // ends requests in flight; nil until executing
	timer    *time.Timer
	ends     time.Time // when it goes off
	patience time.Duration
}

// stopMode says why a hold begins nothing more; later ones are stronger.
type stopMode int

const (
	goOn      stopMode = iota
	stopDrain          // the worker leaves: checkpoint, release
	stopPause          // the run pauses: the same
	stopEnd            // the run ends: checkpoint, seal
)

func stopFor(d record.Desired) stopMode {
	if d == record.DesiredEnd {
		return stopEnd
	}
	return stopPause
}

// stop lets the hold begin nothing more; what is in flight may take patience,
// or what is left of an earlier call's if that is less. How long that is may
// depend on what is in flight: it is asked once nothing is added any more.
func (h *heldShard) stop(m stopMode, may func() time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mode == goOn {
		close(h.stopping)
	}
	patience := may()
	switch {
	case h.mode == goOn:
		h.patience = patience
		h.arm()
	case h.timer == nil:
		h.patience = min(h.patience, patience)
	case time.Now().Add(patience).Before(h.ends):
		h.timer.Reset(patience)
		h.ends = time.Now().Add(patience)
	}
	h.mode = max(h.mode, m)
}

// executing says how to end requests in flight.
func (h *heldShard) executing(abort context.CancelFunc) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.abort = abort
	if h.mode != goOn {
		h.arm()
	}
}

func (h *heldShard) arm() {
	if h.abort != nil && h.timer == nil {
		h.timer, h.ends = time.AfterFunc(h.patience, h.abort), time.Now().Add(h.patience)
	}
}

// over says that nothing is in flight any more.
func (h *heldShard) over() {
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

// begin begins the hold's span, with its claim as the first step, and returns
// the context of the work on it.
func (w *Worker) begin(ctx context.Context, h *heldShard, claimed time.Time) context.Context {
	ctx, h.span = w.StartSpan(ctx, claimed, "shard", h.run, slog.Int(observe.KeyShard, h.shard), slog.Uint64(observe.KeyAttempt, h.attempt), slog.String(observe.KeyWorker, w.cfg.ID))
	_, claim := w.Watch.Tracer.StartChild(ctx, claimed, "claim")
	claim.End(nil)
	return ctx
}

// claimed names the claim to whoever watches.
func (w *Worker) claimed(h *heldShard) observe.Claim {
	return observe.Claim{Run: h.run, Shard: h.shard, Attempt: h.attempt, Worker: w.cfg.ID}
}

// latch is a channel that is closed once.
type latch struct {
	once sync.Once
	ch   chan struct{}
}

func newLatch() *latch { return &latch{ch: make(chan struct{})} }

func (g *latch) open() { g.once.Do(func() { close(g.ch) }) }

// grace is how long requests in flight may go on when their run stops.
func (w *Worker) grace(m record.Manifest) time.Duration {
	if g := m.Config.Limits.Grace.Std(); g > 0 {
		return g
	}
	return w.cfg.Grace
}
