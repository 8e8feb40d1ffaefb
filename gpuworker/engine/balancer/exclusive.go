package balancer

import (
	"context"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
)

// Times of a request that asks for a server exclusively.
const (
	maxExclusiveWait = 30 * time.Second // for an idle server
	firstIdlePoll    = 50 * time.Millisecond
	lastIdlePoll     = time.Second
	exclusivePoll    = 100 * time.Millisecond // between checks that the server does nothing else
)

// answerExclusively sends the request to a server that works on nothing else, and has
// just answered a question. After maxExclusiveWait it takes the server with the fewest
// requests. If that one crashes, the CrashError says whether the request was alone on a
// server that worked before.
func (b *Balancer) answerExclusively(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	q := b.requests.Get().(*request)
	defer b.release(q)
	until := time.Now().Add(maxExclusiveWait)
	for poll := firstIdlePoll; ; poll = min(2*poll, lastIdlePoll) {
		last := !time.Now().Before(until)
		s, idle, err := b.reserve(ctx, r, last)
		if err != nil {
			return engine.Answer{}, err
		}
		if s != nil {
			defer b.free(s)
			b.mu.Lock()
			r = b.begin(q, s, r, progress)
			q.solo = idle
			b.mu.Unlock()
			if idle {
				defer b.checkSolo(ctx, q)()
			}
			return b.send(ctx, q, r)
		}
		progress() // the wait is not a silence of the server
		sleep(ctx, poll)
	}
}

// checkSolo checks repeatedly, until the request ends or stop is called, that the
// server works on nothing but the request. Workers that share a server do not
// know of each other's requests, and the server may crash on one of those.
func (b *Balancer) checkSolo(ctx context.Context, q *request) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(ctx, exclusivePoll) {
			v, err := b.fetchMetrics(ctx, q.server)
			b.mu.Lock()
			// Requests to a restarted server say nothing about the one that crashed.
			sameStart := v.Start == "" || q.start == "" || v.Start == q.start
			if !q.ended && err == nil && sameStart && max(v.Running, 0)+max(v.Waiting, 0) > 1 {
				q.solo = false
			}
			over := q.ended || !q.solo
			b.mu.Unlock()
			if over {
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// reserve reserves a server for one exclusive request: an idle one that works or, at the
// last try, the one with the fewest requests. It returns nil if none is idle yet. The
// caller frees the server.
func (b *Balancer) reserve(ctx context.Context, r engine.Request, last bool) (_ *server, idle bool, _ error) {
	tried := map[*server]bool{}
	for {
		b.mu.Lock()
		s, err := b.idlest(r.Servers, tried, last || ctx.Err() != nil)
		if s != nil {
			s.exclusive = true
		}
		b.mu.Unlock()
		if s == nil {
			return nil, false, err
		}
		idle, hasOurs := b.reportsIdle(ctx, s)
		if idle && b.worksNow(ctx, s, r.Body) {
			idle, hasOurs = b.reportsIdle(ctx, s)
		} else {
			idle = false
		}
		if idle || last || ctx.Err() != nil {
			return s, idle && !hasOurs, nil
		}
		b.free(s)
		tried[s] = true
	}
}

// idlest returns the untried server with the fewest requests of this balancer in
// flight. Unless it is the last try, it must have none. The caller holds b.mu.
func (b *Balancer) idlest(allowed []string, tried map[*server]bool, last bool) (*server, error) {
	var best *server
	anyUp := false
	for i := range b.servers {
		s := b.servers[(b.next+i)%len(b.servers)]
		if s.breaker.setAside() || !s.isOneOf(allowed) {
			continue
		}
		anyUp = true
		if !s.exclusive && !tried[s] && (best == nil || s.inFlight < best.inFlight) {
			best = s
		}
	}
	b.next++
	switch {
	case !anyUp:
		return nil, b.allSetAside()
	case best != nil && best.inFlight > 0 && !last:
		return nil, nil
	}
	return best, nil
}

// reportsIdle reports whether the server works on nothing, as far as it says, and
// whether it has requests of this balancer.
func (b *Balancer) reportsIdle(ctx context.Context, s *server) (idle, hasOurs bool) {
	v, _ := b.fetchMetrics(ctx, s) // without metrics it says nothing
	b.mu.Lock()
	defer b.mu.Unlock()
	return v.Running <= 0 && v.Waiting <= 0, s.inFlight > 0
}

// worksNow asks the server a question, and reports whether it works. A server may fail
// for everybody before anybody has noticed: an exclusive request would meet that alone,
// and be blamed if the server dies later. A failure is probed as that of a request.
func (b *Balancer) worksNow(ctx context.Context, s *server, body []byte) bool {
	err := b.ask(s, questionFor(body))
	if err == nil || fault.Is(err, fault.Throttled) {
		return true
	}
	select {
	case <-b.startProbe(s, body, err, probeTime).done:
	case <-ctx.Done():
	}
	return false
}

func (b *Balancer) free(s *server) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s.exclusive = false
}
