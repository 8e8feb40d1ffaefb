package worker

import (
	"context"
	"fmt"
	"time"

	"rollout/shared/capacity"
	"rollout/shared/core/health"
	"rollout/shared/observe"
)

// Drain starts the worker's orderly end and reports whether this call started
// it. Further calls join the drain under way.
func (w *Worker) Drain(reason string) (started bool) { return w.drainWithin(reason, w.cfg.Drain) }

// drainWithin drains the worker within the budget and reports whether this call
// started the drain. A drain under way keeps its deadline, unless the new one is
// earlier.
func (w *Worker) drainWithin(reason string, budget time.Duration) (started bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	by := w.Clock.Now().Add(budget)
	if w.state == health.Gone || w.state == health.Draining && !by.Before(w.drainBy) {
		return false
	}
	w.drainBy, w.drainBudget = by, budget
	for _, h := range w.held {
		h.stop(stopDrain, func() time.Duration { return w.requestBudgetOf(h) })
	}
	if w.state == health.Draining {
		return false
	}
	w.state = health.Draining
	close(w.drain)
	w.Observe(context.Background(), observe.WorkerDraining{Worker: w.cfg.ID, Reason: reason, Shards: len(w.held)})
	return true
}

// WatchNotices drains the worker at a preemption notice of the machine, within
// the notice's lead or Config.Drain, whichever is shorter. A further notice with
// an earlier deadline shortens the drain. Advice drains only with
// Config.DrainOnAdvice. It returns when ctx ends or notices is closed.
func (w *Worker) WatchNotices(ctx context.Context, notices <-chan capacity.Notice) {
	for {
		select {
		case <-ctx.Done():
			return
		case n, ok := <-notices:
			if !ok {
				return
			}
			if n.Advice && !w.cfg.DrainOnAdvice {
				w.Log.InfoContext(ctx, "the provider recommends to leave this machine: work goes on until a notice of its end",
					observe.KeyReason, n.Reason)
				continue
			}
			w.drainWithin(n.Reason, min(w.cfg.Drain, n.Lead))
		}
	}
}

// maxUnready is the least idle time after which DrainIfIdle drains a worker
// whose executor is not ready: a server that crashed may come back.
const maxUnready = 20 * time.Minute

// DrainIfIdle drains the worker if it has held and received nothing for the
// idle time. Otherwise it returns the least time after which to call again. It
// does not count a drain that something else started.
func (w *Worker) DrainIfIdle(idle time.Duration) (left time.Duration, drained bool) {
	w.mu.Lock()
	if w.unready {
		idle = max(idle, maxUnready)
	}
	since := w.Clock.Now().Sub(w.lastBusy)
	busy := w.claiming > 0 || len(w.held) > 0
	leaving := w.state == health.Draining || w.state == health.Gone
	w.mu.Unlock()
	switch {
	case busy || leaving:
		return idle, false
	case since < idle:
		return idle - since, false
	}
	return 0, w.drainWithin(fmt.Sprintf("there was no work for %s", idle), w.cfg.Drain)
}

// ExecutorReady reports whether the executor was ready when it was last asked.
func (w *Worker) ExecutorReady() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.unready
}

// requestBudget is how long requests in flight may go on in a drain. The rest of
// the drain's budget is for checkpoints.
func (w *Worker) requestBudget() time.Duration { return w.drainBudget * 3 / 4 }

// requestBudgetOf is how long the shard's requests in flight may go on in a
// drain. It is 0 if none of them is likely to end in time: then others can begin
// the shard's items at once. The caller holds w.mu.
func (w *Worker) requestBudgetOf(h *heldShard) time.Duration {
	if h.work == nil {
		return 0
	}
	budget := w.requestBudget()
	if h.kind.Trains {
		if h.work.stopsWithin(budget) {
			return budget
		}
		return 0
	}
	durations := w.stats.recentDurations()
	endsInTime := func(elapsed time.Duration) bool { return endsWithin(durations, elapsed, budget) }
	if h.work.inFlight.any(w.Clock.Now(), endsInTime) {
		return budget
	}
	return 0
}

// outOfTime reports whether a drain has used up its budget. Rows that could not
// be saved by then are given up.
func (w *Worker) outOfTime() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.drainBy.IsZero() && !w.Clock.Now().Before(w.drainBy)
}

// draining reports whether a drain has begun.
func (w *Worker) draining() bool {
	select {
	case <-w.drain:
		return true
	default:
		return false
	}
}
