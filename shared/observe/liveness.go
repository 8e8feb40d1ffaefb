package observe

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"rollout/shared/clock"
	"rollout/shared/core/health"
)

// Liveness knows from the events of this process's workers whether they are alive and
// ready. A nil Liveness has no workers and is always ready. It is safe for concurrent
// use.
type Liveness struct {
	clock   clock.Clock
	limit   time.Duration
	workers int

	mu   sync.Mutex
	last map[string]workerStatus // by worker
}

// workerStatus is a worker's status according to its last heartbeat.
type workerStatus struct {
	at         time.Time
	pool       string
	init, away bool
	draining   bool
}

// NewLiveness returns the liveness of a process with the given number of workers. A
// worker without a heartbeat for longer than limit is not alive.
func NewLiveness(c clock.Clock, limit time.Duration, workers int) *Liveness {
	return &Liveness{clock: c, limit: limit, workers: workers, last: map[string]workerStatus{}}
}

// record updates the status of the worker that an event is about.
func (p *Liveness) record(e Event) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := e.(type) {
	case WorkerHeartbeat:
		p.last[e.Worker] = workerStatus{
			at: p.clock.Now(), pool: e.Pool, away: e.EngineAway,
			init: e.State == string(health.Init), draining: e.State == string(health.Draining),
		}
	case WorkerDeregistered:
		delete(p.last, e.Worker)
	case WorkerFenced: // the worker registers again under another name
		delete(p.last, e.Worker)
	}
}

// Check reports whether the workers are alive, and the reasons why they are not ready;
// nil means ready. A process whose workers are not alive should be restarted.
func (p *Liveness) Check() (alive bool, why []string) {
	if p == nil {
		return true, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	alive = true
	if n := len(p.last); n < p.workers {
		why = append(why, fmt.Sprintf("%d of %d workers are registered", n, p.workers))
	}
	now := p.clock.Now()
	for _, w := range p.last {
		silence := now.Sub(w.at)
		switch {
		case silence > p.limit:
			alive = false
			why = append(why, fmt.Sprintf("a worker of pool %s has not renewed its heartbeat for %s",
				w.pool, silence.Round(time.Second)))
		case w.draining:
			why = append(why, "a worker of pool "+w.pool+" is draining")
		case w.init, w.away:
			why = append(why, "the engine of pool "+w.pool+" does not answer")
		}
	}
	slices.Sort(why)
	return alive, slices.Compact(why)
}
