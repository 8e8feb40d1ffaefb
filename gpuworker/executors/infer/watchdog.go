package infer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"rollout/shared/fault"
)

// watchdog ends requests that show no sign of work for too long, or take too long
// as a whole: one after the other, in one context and with one timer, which
// are made anew only after they ended one. Making them for each request costs
// more than all else that is done for a small one.
type watchdog struct {
	epoch time.Time
	sign  func()       // tells of a sign of work
	last  atomic.Int64 // when the last one was, since epoch

	mu     sync.Mutex
	base   context.Context // what ctx was made from
	ctx    context.Context
	cancel context.CancelCauseFunc
	limits limits
	began  time.Duration // since epoch
	active bool          // a request is under way
	armed  bool          // the timer will go off
	timer  *time.Timer
}

// limits are how long a request may be silent, and how long it may take; the
// latter is unbounded if 0.
type limits struct{ silence, whole time.Duration }

func newWatchdog() *watchdog {
	w := &watchdog{epoch: time.Now()}
	w.sign = func() { w.last.Store(int64(time.Since(w.epoch))) }
	return w
}

// begin returns the context of a request that begins now. Signs are told until
// end is called; later ones are harmless.
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

// end says that the request is over.
func (w *watchdog) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active = false
}

// close gives up what the watch holds. It can be used again.
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

// due is when the request under way has gone on for too long.
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
		w.timer = time.AfterFunc(d, w.wake)
		return
	}
	w.timer.Reset(d)
}

// wake ends the request if its time is over. The timer may have been set for
// an earlier one.
func (w *watchdog) wake() {
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
		w.cancel(late("the request took longer than", w.limits.whole))
	} else {
		w.cancel(late("no token came for", w.limits.silence))
	}
}

func late(what string, limit time.Duration) error {
	return &fault.Error{Kind: fault.Corrupt, Class: fault.Timeout, Err: fault.New(fault.Corrupt, "%s %s", what, limit)}
}
