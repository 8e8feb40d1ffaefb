package worker

import (
	"context"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
)

// lookAgain is how often the flags of others are looked at, at most.
const lookAgain = time.Second

// lockEngine waits until this worker alone has trials at its engine: else the poison
// of one would kill the engine under the innocent suspect of another, again
// and again. false if the shard stops first, or exec ends; run is the worker's
// own context.
//
// Heartbeats are all that workers write of themselves, so these carry a flag,
// and the flags decide as in the one-bit algorithm of Burns and Lamport:
//
//	raise ──a lesser worker's flag is up──▶ lower, wait until none is, raise again
//	  └──else──▶ wait until no greater worker's flag is up ──▶ turn ──▶ lower
//
// Each raises its flag before it looks at the others', so of any two one sees
// the other's. The flags of the dead do not count.
func (w *Worker) lockEngine(run, exec context.Context, stopping <-chan struct{}) (over func(), ok bool) {
	exec, cancel := context.WithCancel(exec)
	defer cancel()
	go func() {
		select {
		case <-stopping:
			cancel()
		case <-exec.Done():
		}
	}()
	select {
	case w.engineMutex <- struct{}{}: // among the shards of this worker
	case <-exec.Done():
		return nil, false
	}
	over = func() {
		w.lower(run)
		<-w.engineMutex
	}
	if !w.awaitTurn(run, exec) {
		over()
		return nil, false
	}
	return over, true
}

func (w *Worker) awaitTurn(run, exec context.Context) bool {
	lesser := func(id string) bool { return id < w.cfg.ID }
	greater := func(id string) bool { return id > w.cfg.ID }
	if w.cfg.Engine == "" { // nobody else asks it
		return exec.Err() == nil
	}
	for {
		if !w.raise(exec) {
			return false
		}
		if !w.flagged(exec, lesser) {
			return w.awaitFlags(exec, greater)
		}
		w.lower(run)
		if !w.awaitFlags(exec, lesser) {
			return false
		}
	}
}

// raise lets the heartbeat say that this worker has, or wants, the turn.
func (w *Worker) raise(ctx context.Context) bool {
	w.flag(w.cfg.Engine)
	for ctx.Err() == nil && w.mayWrite() == nil {
		err := w.writeHeartbeat(ctx)
		if err == nil {
			return true
		}
		w.Log.WarnContext(ctx, "heartbeat failed", observe.KeyError, err)
		pause(ctx, lookAgain)
	}
	return false
}

// lower takes that back. If it can't be said at once, the next heartbeat will.
func (w *Worker) lower(ctx context.Context) {
	if !w.flag("") || w.mayWrite() != nil {
		return
	}
	if err := w.writeHeartbeat(ctx); err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "heartbeat failed", observe.KeyError, err)
	}
}

// flag reports whether it changed.
func (w *Worker) flag(engine string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := w.trialsAt != engine
	w.trialsAt = engine
	return changed
}

// awaitFlags waits until none of those workers' flags is up; false if ctx ends
// first.
func (w *Worker) awaitFlags(ctx context.Context, whose func(id string) bool) bool {
	for w.flagged(ctx, whose) {
		pause(ctx, min(lookAgain, w.cfg.Timings.Interval))
		if ctx.Err() != nil {
			return false
		}
	}
	return ctx.Err() == nil
}

// flagged reports whether one of those workers has its flag up for the same
// engine, or may have.
func (w *Worker) flagged(ctx context.Context, whose func(id string) bool) (up bool) {
	now := w.Clock.Now()
	err := host.Each(ctx, w.Docs, "beat/", func(b health.Heartbeat) error {
		up = up || whose(b.Worker) && b.ProbationEngine == w.cfg.Engine && !w.cfg.Timings.Dead(b, now)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "heartbeats can't be read", observe.KeyError, err)
	}
	return up || fault.Retriable(err) // a heartbeat that can't be read as one is nobody's
}
