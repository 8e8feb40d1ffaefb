package worker

import (
	"context"
	"errors"
	"math"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/ratelimit"
	"rollout/shared/fault"
)

// Online sets up what a worker does for online requests: those of clients that wait for the
// answer, beside the items of runs.
type Online struct {
	Share  float64 // of the requests at once that may be online ones; 0 takes none
	Queue  int     // online requests that wait for a slot, at most
	Socket string  // where the worker's process takes them; for heartbeats
}

// OnlineSlot is the permission to have one online request in flight. Release it once.
type OnlineSlot struct {
	w      *Worker
	permit limitPermit
	ctx    context.Context
	cancel context.CancelFunc
}

// ErrDrained is the cause of the end of an online request that a drain has cut off.
var ErrDrained = errors.New("the worker has drained")

// AcquireOnline waits until an online request of that cost may begin: within the online
// share of the requests at once, and under the pool's limit. It fails with Throttled if too
// many wait already, with Unavailable if the worker drains or the wait is over, and with
// Canceled if ctx ends first.
func (w *Worker) AcquireOnline(ctx context.Context, wait time.Duration, c Cost) (*OnlineSlot, error) {
	if !w.beginOnline() {
		return nil, fault.New(fault.Unavailable, "worker %s drains", w.cfg.ID)
	}
	waiting, stopWaiting := context.WithTimeout(ctx, wait)
	defer stopWaiting()
	permit, waited, err := w.acquireOnline(waiting, c)
	if err == nil && waited && w.isEngineAskedAlone(waiting) {
		w.slots.releaseOnline()
		permit.Cancel()
		err = fault.New(fault.Unavailable, "the engine is asked about an item on probation")
	}
	if err != nil {
		w.onlineWork.Done()
		if waiting.Err() != nil && ctx.Err() == nil {
			return nil, fault.New(fault.Unavailable, "no slot was free within %s", wait)
		}
		return nil, err
	}
	s := &OnlineSlot{w: w, permit: permit}
	s.ctx, s.cancel = context.WithCancel(ctx)
	end := s.cancel
	stop := context.AfterFunc(w.onlineEnds, end)
	s.cancel = func() { stop(); end() }
	return s, nil
}

// beginOnline counts an online request, unless the worker drains.
func (w *Worker) beginOnline() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state == health.Draining || w.state == health.Gone {
		return false
	}
	w.onlineWork.Add(1)
	return true
}

// isEngineAskedAlone reports whether another worker asks the engine about items on probation,
// or is about to. Whoever gave the worker the request saw no such flag, but a wait is long.
// This worker's own probation holds all slots.
func (w *Worker) isEngineAskedAlone(ctx context.Context) bool {
	return w.cfg.Engine != "" && w.anyFlag(ctx, func(id string) bool { return id != w.cfg.ID })
}

// acquireOnline takes a permit and a slot, and reports whether it had to wait. As in
// acquireAll, neither waits for the other. Whoever waits for either is in the queue.
func (w *Worker) acquireOnline(ctx context.Context, c Cost) (permit limitPermit, waited bool, err error) {
	of, queue := claimant{online: true}, w.cfg.Online.Queue
	for {
		queued, err := w.slots.acquireOnline(ctx, w.drain, queue)
		if queued {
			waited, queue = true, math.MaxInt // it has its place
		}
		if err != nil || w.limiter == nil {
			return limitPermit{}, waited, err
		}
		if permit, ok := w.limiter.tryAcquire(of, c); ok {
			return permit, waited, nil
		}
		if err := w.slots.leaveForLimit(queue); err != nil {
			return limitPermit{}, waited, err
		}
		waited, queue = true, math.MaxInt
		permit, ok := w.limiter.acquire(ctx, w.drain, of, c)
		free := w.slots.tryAfterLimit(ok)
		switch {
		case ok && free:
			return permit, waited, nil
		case ok:
			permit.Cancel()
		case ctx.Err() != nil:
			return permit, waited, fault.WithKind(fault.Canceled, context.Cause(ctx), "wait for the pool's limit")
		default:
			return permit, waited, fault.New(fault.Unavailable, "worker %s drains", w.cfg.ID)
		}
	}
}

// Context ends with the one that AcquireOnline got, and when a drain has no more time for
// online requests.
func (s *OnlineSlot) Context() context.Context { return s.ctx }

// CutOff reports whether the drain has ended the request.
func (s *OnlineSlot) CutOff() bool { return s.w.onlineEnds.Err() != nil }

// Report takes in what the answer says of the server's limits.
func (s *OnlineSlot) Report(r ratelimit.Report) { s.permit.Report(r) }

// Unused says that the request did not begin. Release the slot all the same.
func (s *OnlineSlot) Unused() { s.permit.Cancel() }

// Release gives the slot back after the request has ended.
func (s *OnlineSlot) Release() {
	s.cancel()
	s.w.slots.releaseOnline()
	s.w.onlineWork.Done()
}

// drainOnline waits until the online requests of a draining worker have ended. It cuts them
// off when the part of the drain's budget that belongs to requests is used up.
func (w *Worker) drainOnline(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		w.onlineWork.Wait()
		close(ended)
	}()
	w.mu.Lock()
	end := w.drainBy
	last := end.Add(-w.drainBudget / 4)
	w.mu.Unlock()
	for _, until := range []time.Time{last, end} {
		wait := time.NewTimer(max(0, until.Sub(w.Clock.Now())))
		defer wait.Stop()
		select {
		case <-ended:
			return
		case <-wait.C:
			w.endOnline()
		case <-ctx.Done():
			w.endOnline()
			return
		}
	}
}

// onlineReport returns the worker's part in online requests for a heartbeat; nil if it
// takes none. The caller holds w.mu.
func (w *Worker) onlineReport() *health.Online {
	if w.cfg.Online.Share <= 0 || w.cfg.Online.Socket == "" {
		return nil
	}
	o := &health.Online{Socket: w.cfg.Online.Socket, Engine: w.cfg.Engine}
	o.InFlight, o.Waiting, o.Limit = w.slots.onlineLoad()
	return o
}
