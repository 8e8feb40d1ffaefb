package observe

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"rollout/shared/clock"
	"rollout/shared/core/health"
)

// Liveness tells whether the workers of this process live and can work, by the
// events that they tell. A nil Pulse knows of none.
type Liveness struct {
	clock   clock.Clock
	limit   time.Duration
	workers int

	mu   sync.Mutex
	last map[string]workerStatus // by worker
}

// workerStatus is a worker as it told last.
type workerStatus struct {
	at         time.Time
	pool       string
	init, away bool
	draining   bool
}

// NewLiveness returns the pulse of a process of so many workers, whose heartbeats
// may be limit apart.
func NewLiveness(c clock.Clock, limit time.Duration, workers int) *Liveness {
	return &Liveness{clock: c, limit: limit, workers: workers, last: map[string]workerStatus{}}
}

// record takes in what an event says about a worker.
func (p *Liveness) record(e Event) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := e.(type) {
	case WorkerHeartbeat:
		p.last[e.Worker] = workerStatus{at: p.clock.Now(), pool: e.Pool, init: e.State == string(health.Init), away: e.EngineAway,
			draining: e.State == string(health.Draining)}
	case WorkerDeregistered:
		delete(p.last, e.Worker)
	case WorkerFenced: // it starts anew under another name
		delete(p.last, e.Worker)
	}
}

// Check reports whether the workers live, and why they can't work; nothing if
// they can. A process whose workers do not live should be started again.
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
			why = append(why, fmt.Sprintf("a worker of pool %s has not renewed its heartbeat for %s", w.pool, silence.Round(time.Second)))
		case w.draining:
			why = append(why, "a worker of pool "+w.pool+" is on its way out")
		case w.init, w.away:
			why = append(why, "the engine of pool "+w.pool+" can't answer")
		}
	}
	slices.Sort(why)
	return alive, slices.Compact(why)
}
