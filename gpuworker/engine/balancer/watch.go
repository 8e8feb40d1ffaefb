package balancer

import (
	"context"
	"time"
)

// watchEvery is how often servers that work are looked at.
const watchEvery = time.Second

// watch keeps what is known of servers new: of when they started, and of their
// queues. One without requests is left alone.
func (f *Balancer) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-f.ctx.Done():
			return
		}
		for _, s := range f.servers {
			f.watchOne(s)
		}
	}
}

func (f *Balancer) watchOne(s *server) {
	f.mu.Lock()
	idle := s.inFlight == 0 || s.breaker.away() || s.watching
	s.watching = s.watching || !idle
	f.mu.Unlock()
	if idle {
		return
	}
	f.work.Go(func() {
		ctx, cancel := context.WithTimeout(f.ctx, questionTime)
		defer cancel()
		v, err := f.fetchMetrics(ctx, s)
		f.mu.Lock()
		s.watching = false
		changed := false
		if err == nil { // who can't be looked at is judged by what becomes of requests
			if s.concurrency != nil && !s.breaker.away() {
				before := s.concurrency.limit
				s.concurrency.told(v, s.inFlight)
				if s.concurrency.limit != before {
					s.window = newWindow(time.Now())
				}
			}
			changed = f.toldAnew()
		}
		f.mu.Unlock()
		if changed {
			f.tell()
		}
	})
}
