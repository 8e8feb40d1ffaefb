package balancer

import (
	"context"
	"time"

	"rollout/gpuworker/engine"
)

// Times of a request that wants a server alone.
const (
	aloneTime  = 30 * time.Second // to wait for one
	alonePause = 50 * time.Millisecond
	longPause  = time.Second
	aloneLook  = 100 * time.Millisecond // between looks at whether it still has it alone
)

// answerAlone asks a server that works on nothing else. After a while it makes
// do with the one that has the least to do, and says so if that dies.
func (f *Balancer) answerAlone(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	a := f.asks.Get().(*ask)
	defer f.release(a)
	until := time.Now().Add(aloneTime)
	for pause := alonePause; ; pause = min(2*pause, longPause) {
		last := !time.Now().Before(until)
		s, quiet, err := f.reserve(ctx, last)
		if err != nil {
			return engine.Answer{}, err
		}
		if s != nil {
			defer f.free(s)
			f.mu.Lock()
			a.begin(s, progress, time.Now())
			a.alone = quiet
			f.mu.Unlock()
			if quiet {
				defer f.guard(ctx, a)()
			}
			return f.ask(ctx, a, r)
		}
		progress() // that the request waits is no silence of a server's
		sleep(ctx, pause)
	}
}

// guard looks again and again whether the server still works on nothing but the
// request, until that ends or stop is called. Workers that share a server don't
// hear of each other's requests, and what one of them asks meanwhile may be what
// the server dies of.
func (f *Balancer) guard(ctx context.Context, a *ask) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(ctx, aloneLook) {
			v, err := f.fetchMetrics(ctx, a.server)
			f.mu.Lock()
			itsOwn := v.Start == "" || a.start == "" || v.Start == a.start // not of those who ask the next life
			if !a.ended && err == nil && itsOwn && max(v.Running, 0)+max(v.Waiting, 0) > 1 {
				a.alone = false
			}
			over := a.ended || !a.alone
			f.mu.Unlock()
			if over {
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// reserve returns a server for one request alone: a quiet one, or at last the
// one with the least to do. None if there is no quiet one yet.
func (f *Balancer) reserve(ctx context.Context, last bool) (_ *server, quiet bool, _ error) {
	tried := map[*server]bool{}
	for {
		f.mu.Lock()
		s, err := f.idlest(tried, last || ctx.Err() != nil)
		if s != nil {
			s.exclusive = true
		}
		f.mu.Unlock()
		if s == nil {
			return nil, false, err
		}
		quiet, busy := f.quiet(ctx, s)
		if quiet || last || ctx.Err() != nil {
			return s, quiet && !busy, nil
		}
		f.free(s)
		tried[s] = true
	}
}

// idlest returns the server with the fewest requests of ours in flight that was
// not tried yet; unless it is the last try, it must have none. f.mu is held.
func (f *Balancer) idlest(tried map[*server]bool, last bool) (*server, error) {
	var best *server
	present := false
	for i := range f.servers {
		s := f.servers[(f.next+i)%len(f.servers)]
		if s.breaker.away() {
			continue
		}
		present = true
		if !s.exclusive && !tried[s] && (best == nil || s.inFlight < best.inFlight) {
			best = s
		}
	}
	f.next++
	switch {
	case !present:
		return nil, f.allAway()
	case best != nil && best.inFlight > 0 && !last:
		return nil, nil
	}
	return best, nil
}

// quiet reports whether the server works on nothing, as far as it says; busy
// that requests of ours are with it.
func (f *Balancer) quiet(ctx context.Context, s *server) (quiet, busy bool) {
	v, _ := f.fetchMetrics(ctx, s) // who can't be looked at says nothing
	f.mu.Lock()
	defer f.mu.Unlock()
	return v.Running <= 0 && v.Waiting <= 0, s.inFlight > 0
}

func (f *Balancer) free(s *server) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s.exclusive = false
}
