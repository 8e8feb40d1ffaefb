package infer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
)

// watchdog cancels a request that shows no progress for too long, or takes too
// long as a whole. It serves requests one after the other with one context and
// one timer, and makes new ones only after they have cancelled a request: to
// make them for each request would cost more than the rest of a small one.
type watchdog struct {
	epoch    time.Time
	progress func()       // records progress of the request
	last     atomic.Int64 // nanoseconds from epoch to the last progress

	mu     sync.Mutex
	base   context.Context // the parent of ctx
	ctx    context.Context
	cancel context.CancelCauseFunc
	limits limits
	began  time.Duration // since epoch
	active bool          // a request is under way
	armed  bool          // the timer will fire
	timer  *time.Timer
}

// limits are the longest silence of a request and its longest duration as a
// whole. A whole of 0 sets no limit.
type limits struct{ silence, whole time.Duration }

func newWatchdog() *watchdog {
	w := &watchdog{epoch: time.Now()}
	w.progress = func() { w.last.Store(int64(time.Since(w.epoch))) }
	return w
}

// begin returns the context of a request that begins now. The caller reports its
// progress until end; a later report does no harm.
func (w *watchdog) begin(ctx context.Context, l limits) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.base != ctx || w.ctx.Err() != nil {
		w.renew(ctx)
	}
	w.limits, w.active = l, true
	w.began = time.Since(w.epoch)
	w.last.Store(int64(w.began))
	if !w.armed {
		w.arm(w.due() - w.began)
	}
	return w.ctx
}

// end says that the request has ended.
func (w *watchdog) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active = false
}

// close releases the context and the timer. The watchdog can be used again.
func (w *watchdog) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil && w.timer.Stop() {
		w.armed = false
	}
	if w.cancel != nil {
		w.cancel(nil)
	}
	w.base = nil
}

func (w *watchdog) renew(ctx context.Context) {
	if w.cancel != nil {
		w.cancel(nil)
	}
	w.base = ctx
	w.ctx, w.cancel = context.WithCancelCause(ctx)
}

// due returns when, since epoch, the request reaches a limit.
func (w *watchdog) due() time.Duration {
	due := time.Duration(w.last.Load()) + w.limits.silence
	if w.limits.whole > 0 {
		due = min(due, w.began+w.limits.whole)
	}
	return due
}

func (w *watchdog) arm(d time.Duration) {
	w.armed = true
	if w.timer == nil {
		w.timer = time.AfterFunc(d, w.check)
		return
	}
	w.timer.Reset(d)
}

// check cancels the request if it has reached a limit. Otherwise it arms the
// timer again, which may have been set for an earlier request.
func (w *watchdog) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = false
	if !w.active {
		return
	}
	now := time.Since(w.epoch)
	if due := w.due(); now < due {
		w.arm(due - now)
		return
	}
	if w.limits.whole > 0 && now >= w.began+w.limits.whole {
		w.cancel(timeout(fmt.Errorf("the request took longer than %s", w.limits.whole), "worker.request_timeout"))
	} else {
		w.cancel(timeout(fmt.Errorf("%w for %s", engine.ErrSilent, w.limits.silence), "worker.progress_timeout"))
	}
}

// timeout is the fault of a request that reached the limit of a setting.
func timeout(err error, setting string) error {
	return &fault.Error{Kind: fault.Corrupt, Class: fault.Timeout, Err: err,
		Remedy: "raise " + setting + " if the server needs longer"}
}
