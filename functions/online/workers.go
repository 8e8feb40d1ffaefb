package online

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"rollout/shared/config"
	"rollout/shared/core/health"
	"rollout/shared/host"
	"rollout/shared/record"
)

// brokenFor is how long a worker whose socket takes no connection is not asked again. Heartbeats are
// read at most once in health.OnlineReadEvery.
const brokenFor = time.Second

// workers knows which workers take online requests. It is safe for concurrent use.
type workers struct {
	ports   host.Ports
	timings health.Timings

	mu     sync.Mutex
	readAt time.Time
	all    []health.Heartbeat   // of live workers
	state  map[string]*asked    // by socket
	broken map[string]time.Time // sockets that took no connection, until then
}

// asked is how many requests the door has at a worker.
type asked struct{ requests int }

func newWorkers(p host.Ports, d config.Deployment) workers {
	return workers{ports: p, timings: host.Timings(d.Health), state: map[string]*asked{},
		broken: map[string]time.Time{}}
}

// candidate is a worker that may get a request.
type candidate struct {
	socket string
	pool   pool
	load   float64 // requests of the door, by how many the worker takes at once
}

// candidates returns the workers of the pools that take requests now, the least busy first.
// Workers whose engine is asked about an item on probation are left out.
func (s *workers) candidates(ctx context.Context, pools []pool) ([]candidate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.ports.Clock.Now()
	if s.all == nil || now.Sub(s.readAt) >= health.OnlineReadEvery || now.Before(s.readAt) {
		if err := s.read(ctx, now); err != nil {
			return nil, err
		}
	}
	onProbation := map[string]bool{}
	for _, b := range s.all {
		onProbation[b.ProbationEngine] = b.ProbationEngine != ""
	}
	var out []candidate
	for _, b := range s.all {
		i := slices.IndexFunc(pools, func(p pool) bool { return p.name == b.Pool })
		if i < 0 || b.Online == nil || b.State == health.Draining || onProbation[b.Online.Engine] ||
			now.Before(s.broken[b.Online.Socket]) {
			continue
		}
		c := candidate{socket: b.Online.Socket, pool: pools[i]}
		if at := s.state[c.socket]; at != nil {
			c.load = float64(at.requests) / float64(max(1, b.Online.Limit))
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b candidate) int { return cmp.Compare(a.load, b.load) })
	return out, nil
}

// read reads the heartbeats of the live workers. The caller holds s.mu.
func (s *workers) read(ctx context.Context, now time.Time) error {
	all := []health.Heartbeat{}
	err := host.Each(ctx, s.ports.Docs, record.HeartbeatPrefix, func(b health.Heartbeat) error {
		if !s.timings.Dead(b, now) {
			all = append(all, b)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.all, s.readAt = all, now
	for socket, until := range s.broken {
		if now.After(until) {
			delete(s.broken, socket)
		}
	}
	return nil
}

// begin counts a request at a worker until end is called.
func (s *workers) begin(socket string) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := s.state[socket]
	if at == nil {
		at = &asked{}
		s.state[socket] = at
	}
	at.requests++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if at.requests--; at.requests == 0 {
			delete(s.state, socket)
		}
	}
}

// broke says that a worker's socket takes no connection: it has ended, or is being replaced.
func (s *workers) broke(socket string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broken[socket] = s.ports.Clock.Now().Add(brokenFor)
	s.all = nil // its successor may have a heartbeat already
}
