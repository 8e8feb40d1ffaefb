package worker

import (
	"context"
	"time"

	"rollout/shared/core/ratelimit"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/record"
)

// limitLoop takes and renews the worker's share of the pool's limit while requests need
// one. It reads and writes nothing while none does.
func (w *Worker) limitLoop(ctx context.Context) {
	l := w.limiter
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		var due <-chan time.Time
		if wait, ok := l.nextLook(); ok {
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-l.demand:
			continue // it may be due earlier
		case <-due:
		}
		err := w.updateShare(ctx, l.look)
		if fault.Is(err, fault.Fenced) {
			return // the heartbeat loop ends the worker
		}
		if err != nil && ctx.Err() == nil && !fault.Is(err, fault.Conflict) {
			l.failed() // not at once again
			w.Log.WarnContext(ctx, "share of the pool's limit can't be renewed", "pool", w.cfg.Pool, "error", err)
		}
	}
}

// updateShare reads the limit's document, and writes what change makes of it, if
// anything. A Conflict means that another worker wrote first.
func (w *Worker) updateShare(ctx context.Context,
	change func(ratelimit.Doc) (next ratelimit.Doc, asked time.Time, write bool)) error {
	if err := w.mayWrite(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.cfg.Timings.SelfFence)
	defer cancel()
	var d ratelimit.Doc
	rev, _, err := host.Load(ctx, w.Docs, record.LimitKey(w.cfg.Pool), &d)
	if err != nil {
		return err
	}
	next, asked, write := change(d)
	if !write {
		return nil
	}
	if _, err := host.Save(ctx, w.Docs, record.LimitKey(w.cfg.Pool), next, rev); err != nil {
		return err
	}
	w.limiter.saved(next, asked)
	return nil
}

// returnShare gives the share back at the end, so that others need not wait until it
// expires. If that fails, it expires.
func (w *Worker) returnShare(ctx context.Context) {
	if w.limiter == nil {
		return
	}
	var wait time.Duration
	leave := func(d ratelimit.Doc) (ratelimit.Doc, time.Time, bool) {
		next, asked, write := w.limiter.leave(d)
		wait = d.Wait(asked)
		return next, asked, write && wait == 0
	}
	for range maxReturns {
		err := w.updateShare(ctx, leave)
		if err == nil && wait == 0 || ctx.Err() != nil || err != nil && !fault.Is(err, fault.Conflict) {
			return
		}
		pause(ctx, wait)
	}
}

// maxReturns is how often a worker tries to return its share when it ends: other
// workers may be writing.
const maxReturns = 3

// nextLook returns for how long the document need not be read.
func (l *limiter) nextLook() (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.lease.NextLook(l.waiting())
	return max(0, at.Sub(l.now())), ok
}

// look returns the document to write, if any, and the time to pass to saved.
func (l *limiter) look(d ratelimit.Doc) (next ratelimit.Doc, asked time.Time, write bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	asked = l.now()
	next, write = l.lease.Look(d, l.waiting(), asked)
	return next, asked, write
}

// leave is look for a worker that ends.
func (l *limiter) leave(d ratelimit.Doc) (next ratelimit.Doc, asked time.Time, write bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	asked = l.now()
	next, write = l.lease.Leave(d, asked)
	return next, asked, write
}

// saved says that the document was written.
func (l *limiter) saved(d ratelimit.Doc, asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease.Saved(d, asked)
	l.admit()
}

// failed says that the document could not be read or written.
func (l *limiter) failed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease.Failed(l.now())
}
