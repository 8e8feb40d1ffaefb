package balancer

import (
	"context"
	"time"
)

// watchEvery is how often the metrics of working servers are fetched.
const watchEvery = time.Second

// watch keeps what is known of the servers' starts and queues up to date. It
// leaves servers without requests, and those that report nothing, alone.
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
			now := time.Now()
			b.watchOne(s, now)
			b.watchWhole(s, now)
			b.watchPort(s, now)
		}
	}
}

// connected is a Server over connections.
type connected interface {
	// Listens reports whether the server takes new connections; true if that can't be
	// found out.
	Listens(ctx context.Context) bool
	// Break ends the answers in flight with an Unavailable fault.
	Break()
}

// A server that shows no sign of work for quietTime, and whose port is closed
// closedTimes in a row then, is ending: what it has in flight hangs. The longer it is
// quiet, as a server without counters is with long answers, the less often its port is
// checked: after a quietShare-th part of that time, at most after longestCheck.
const (
	quietTime    = time.Second
	closedTimes  = 2
	quietShare   = 4
	longestCheck = 5 * time.Second
)

// watchPort ends the requests of a server that takes no connections any more and works
// on nothing: one that was told to end may keep them open behind a closed port.
func (b *Balancer) watchPort(s *server, now time.Time) {
	at, ok := s.Server.(connected)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	signs := s.signs.Load()
	if s.inFlight == 0 || signs != s.signsSeen || s.quiet.IsZero() {
		s.signsSeen, s.quiet, s.closed, s.checkAt = signs, now, 0, time.Time{}
		return
	}
	quiet := now.Sub(s.quiet)
	if quiet < quietTime || s.checking || s.closed == 0 && now.Before(s.checkAt) {
		return
	}
	s.checking, s.checkAt = true, now.Add(min(quiet/quietShare, longestCheck))
	b.work.Go(func() {
		ctx, cancel := context.WithTimeout(b.ctx, quietTime)
		defer cancel()
		listens := at.Listens(ctx)
		b.mu.Lock()
		s.checking = false
		s.closed++
		if listens || ctx.Err() != nil || s.signs.Load() != signs {
			s.closed = 0
		}
		ends := s.closed >= closedTimes
		if ends {
			s.closed = 0
		}
		b.mu.Unlock()
		if ends {
			b.log.Warn("the inference server's port is closed and its requests hang; they are asked again", "server", s.Name)
			at.Break()
		}
	})
}

// planFetch sets when the metrics may be fetched again, after a fetch. The caller holds
// the Balancer's mutex.
func (s *server) planFetch(asked, now time.Time) {
	s.fetchAt = asked.Add(min(fetchShare*now.Sub(asked), longestFetch, s.silence/fetchesInSilence))
}

// mayFetch reports whether the metrics may be fetched again. A server that has reported
// nothing is asked seldom, and only if it answers requests. The caller holds the
// Balancer's mutex.
func (s *server) mayFetch(now time.Time) bool {
	if !s.silent {
		s.askWait = 0
		return !now.Before(s.fetchAt)
	}
	if !s.answered || now.Before(s.fetchAt.Add(s.askWait)) {
		return false
	}
	s.askWait = max(firstAskWait, min(2*s.askWait, lastAskWait))
	return true
}

func (b *Balancer) watchOne(s *server, now time.Time) {
	b.mu.Lock()
	skip := s.inFlight == 0 || s.breaker.setAside() || s.watching || !s.mayFetch(now)
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
