package worker

import (
	"context"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/observe"
)

// flagPoll bounds the time between reads of other workers' flags.
const flagPoll = time.Second

// lockEngine waits until this worker alone may ask items on probation at its
// engine. Otherwise one worker's poison item would crash the engine under
// another worker's innocent suspect, again and again. It returns false if the
// shard stops or exec ends first. Run is the context of the worker itself.
//
// Workers write nothing of themselves but their heartbeat. So the heartbeat
// carries a flag, and the flags form a lock by the one-bit algorithm of Burns
// and Lamport (workers are ordered by their IDs):
//
//	raise ──a lesser worker's flag is up──▶ lower, wait until all are down, raise again
//	  └──else──▶ wait until no greater worker's flag is up ──▶ locked ──▶ lower
//
// Each worker raises its flag before it reads the others', so that of any two at
// least one sees the other's flag. Flags of dead workers do not count. Whoever has the
// lock waits for the online requests that others have at the engine; see awaitOnline.
func (w *Worker) lockEngine(run, exec context.Context, stopping <-chan struct{}) (unlock func(), ok bool) {
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
	case w.engineMutex <- struct{}{}: // excludes other shards of this worker
	case <-exec.Done():
		return nil, false
	}
	unlock = func() {
		w.lowerFlag(run)
		<-w.engineMutex
	}
	if !w.lockAmongWorkers(run, exec) || !w.awaitOnline(exec) {
		unlock()
		return nil, false
	}
	return unlock, true
}

// maxOnlineWait bounds the wait for online requests of other workers: a stream may last long.
const maxOnlineWait = 30 * time.Second

// awaitOnline waits until other workers have no online request at the engine. They get none while
// this worker's flag is up, but for those that the door gives them before it sees the flag. So what
// counts is a heartbeat of a while after that. It returns false if ctx ends first.
func (w *Worker) awaitOnline(ctx context.Context) bool {
	raised := w.Clock.Now()
	busy := func(b health.Heartbeat) bool {
		return w.cfg.Engine != "" && b.Worker != w.cfg.ID && b.Online != nil && b.Online.Engine == w.cfg.Engine &&
			!w.cfg.Timings.Dead(b, w.Clock.Now()) &&
			(b.Online.InFlight > 0 || b.At.Before(raised.Add(2*health.OnlineReadEvery)))
	}
	for w.anyHeartbeat(ctx, busy) && w.Clock.Now().Sub(raised) < maxOnlineWait && ctx.Err() == nil {
		pause(ctx, min(flagPoll, w.cfg.Timings.Interval))
	}
	return ctx.Err() == nil
}

// lockAmongWorkers takes the lock that workers of the same engine share.
func (w *Worker) lockAmongWorkers(run, exec context.Context) bool {
	lesser := func(id string) bool { return id < w.cfg.ID }
	greater := func(id string) bool { return id > w.cfg.ID }
	if w.cfg.Engine == "" { // no other worker uses it
		return exec.Err() == nil
	}
	for {
		if !w.raiseFlag(exec) {
			return false
		}
		if !w.anyFlag(exec, lesser) {
			return w.awaitFlagsDown(exec, greater)
		}
		w.lowerFlag(run)
		if !w.awaitFlagsDown(exec, lesser) {
			return false
		}
	}
}

// raiseFlag writes a heartbeat that says that this worker has or wants the lock.
func (w *Worker) raiseFlag(ctx context.Context) bool {
	w.setFlag(w.cfg.Engine)
	for ctx.Err() == nil && w.mayWrite() == nil {
		err := w.writeHeartbeat(ctx)
		if err == nil {
			return true
		}
		w.Log.WarnContext(ctx, "heartbeat failed", observe.KeyError, err)
		pause(ctx, flagPoll)
	}
	return false
}

// lowerFlag writes a heartbeat without the flag. If that fails, the next regular
// heartbeat lowers it.
func (w *Worker) lowerFlag(ctx context.Context) {
	if !w.setFlag("") || w.mayWrite() != nil {
		return
	}
	if err := w.writeHeartbeat(ctx); err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "heartbeat failed", observe.KeyError, err)
	}
}

// setFlag sets the flag of the next heartbeats and reports whether it changed.
func (w *Worker) setFlag(engine string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := w.probationEngine != engine
	w.probationEngine = engine
	return changed
}

// awaitFlagsDown waits until no flag of the workers that match is up. It returns
// false if ctx ends first.
func (w *Worker) awaitFlagsDown(ctx context.Context, match func(id string) bool) bool {
	for w.anyFlag(ctx, match) {
		pause(ctx, min(flagPoll, w.cfg.Timings.Interval))
		if ctx.Err() != nil {
			return false
		}
	}
	return ctx.Err() == nil
}

// anyFlag reports whether a worker that matches has its flag up for the same
// engine. If the heartbeats can't be read now, it reports true.
func (w *Worker) anyFlag(ctx context.Context, match func(id string) bool) bool {
	now := w.Clock.Now()
	return w.anyHeartbeat(ctx, func(b health.Heartbeat) bool {
		return match(b.Worker) && b.ProbationEngine == w.cfg.Engine && !w.cfg.Timings.Dead(b, now)
	})
}

// anyHeartbeat reports whether a heartbeat matches. If they can't be read now, it reports true.
func (w *Worker) anyHeartbeat(ctx context.Context, match func(health.Heartbeat) bool) (found bool) {
	err := host.Each(ctx, w.Docs, "beat/", func(b health.Heartbeat) error {
		found = found || match(b)
		return nil
	})
	if err != nil && ctx.Err() == nil {
		w.Log.WarnContext(ctx, "heartbeats can't be read", observe.KeyError, err)
	}
	return found || fault.Retriable(err) // a damaged heartbeat says nothing
}
