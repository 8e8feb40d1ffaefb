package balancer

import (
	"context"
	"time"
)

// watchEvery is how often the metrics of working servers are fetched.
const watchEvery = time.Second

// watch keeps what is known of the servers' starts and queues up to date. It
// leaves servers without requests alone.
func (b *Balancer) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-b.ctx.Done():
			return
		}
		for _, s := range b.servers {
			b.watchOne(s)
		}
	}
}

func (b *Balancer) watchOne(s *server) {
	b.mu.Lock()
	skip := s.inFlight == 0 || s.breaker.setAside() || s.watching
	s.watching = s.watching || !skip
	b.mu.Unlock()
	if skip {
		return
	}
	b.work.Go(func() {
		ctx, cancel := context.WithTimeout(b.ctx, questionTime)
		defer cancel()
		v, err := b.fetchMetrics(ctx, s)
		b.mu.Lock()
		s.watching = false
		changed := false
		if err == nil { // a server that fails is found by its requests
			if s.concurrency != nil && !s.breaker.setAside() {
				before := s.concurrency.limit
				s.concurrency.addMetrics(v, s.inFlight)
				if s.concurrency.limit != before {
					s.window = newWindow(time.Now())
				}
			}
			changed = b.limitChanged()
		}
		b.mu.Unlock()
		if changed {
			b.announceLimit()
		}
	})
}
