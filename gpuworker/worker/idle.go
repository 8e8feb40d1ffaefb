package worker

import (
	"fmt"
	"time"

	"rollout/shared/core/health"
)

// unready is how long a worker whose executor can't answer is not taken for
// idle, if that is longer: a server that died may come back.
const unready = 20 * time.Minute

// ExecutorReady reports whether the worker's executor could answer when it was asked
// last.
func (w *Worker) ExecutorReady() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.unready
}

// DrainIfIdle drains the worker if nothing has been in its hands for that long, or
// says how long that may still take at least. A worker that drains already is
// not retired.
func (w *Worker) DrainIfIdle(idle time.Duration) (left time.Duration, retired bool) {
	w.mu.Lock()
	if w.unready {
		idle = max(idle, unready)
	}
	since := w.Clock.Now().Sub(w.busyAt)
	busy := w.taking > 0 || len(w.held) > 0
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
