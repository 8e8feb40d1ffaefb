package balancer

import (
	"sync/atomic"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
)

// server is a member and what the fleet knows of it. The fleet's mutex guards
// all but signs.
type server struct {
	Backend
	breaker     breaker
	probe       *probe            // under way; nil if none is
	concurrency *concurrencyLimit // nil: the caller's number is fixed
	window      window
	inFlight    int
	watching    bool      // it is being looked at
	exclusive   bool      // it answers one request alone
	full        time.Time // it asked for less; others are preferred until then
	why         error     // its last trouble
	waiting     int       // at it, as it said last; negative if it did not

	// A server that dies and comes back lives another life. Its start names a
	// life where the server says when it started.
	incarnation int
	start       string

	signs atomic.Int64 // of work on requests
}

// before reports whether s should get a request rather than o.
func (s *server) before(o *server, now time.Time) bool {
	if a, b := s.rank(now), o.rank(now); a != b {
		return a < b
	}
	return s.load() < o.load()
}

func (s *server) rank(now time.Time) int {
	switch {
	case s.breaker.state == Probing:
		return 2
	case now.Before(s.full):
		return 1
	}
	return 0
}

// load is the requests in flight, in relation to what the server takes.
func (s *server) load() float64 {
	if s.concurrency == nil {
		return float64(s.inFlight)
	}
	return float64(s.inFlight+1) / float64(s.concurrency.limit)
}

// tells takes in what the server tells of itself. f.mu is held.
func (s *server) tells(v engine.ServerMetrics) {
	s.waiting = int(v.Waiting)
	if v.Start == "" || v.Start == s.start {
		return
	}
	if s.start != "" {
		s.incarnation++
	}
	s.start = v.Start
}

// ask is one request in flight; its memory is used again.
type ask struct {
	server *server
	began  time.Time
	life   int    // of the server, when the request began
	start  string // its name
	alone  bool   // the server works, and worked, on nothing else, as far as it says
	ended  bool
	pieces int64
	inner  func()
	tell   func() // the progress that the server reports
}

func newAsk() any {
	a := &ask{}
	a.tell = a.progress
	return a
}

func (f *Balancer) release(a *ask) {
	*a = ask{tell: a.tell}
	f.asks.Put(a)
}

func (a *ask) progress() {
	a.pieces++
	a.server.signs.Add(1)
	a.inner()
}

// begin makes the request one in flight on the server. f.mu is held.
func (a *ask) begin(s *server, progress func(), now time.Time) {
	a.server, a.inner, a.began, a.life, a.start = s, progress, now, s.incarnation, s.start
	s.window.moved(now, s.inFlight)
	s.inFlight++
}

// over ends it; true if the server's limit changed. f.mu is held.
func (a *ask) over(now time.Time, err error) bool {
	s := a.server
	a.ended = true
	s.window.moved(now, s.inFlight)
	s.inFlight--
	if fault.Is(err, fault.Throttled) {
		s.full = now.Add(max(fault.RetryAfter(err), time.Second))
	}
	if s.concurrency == nil {
		return false
	}
	before := s.concurrency.limit
	switch {
	case err == nil:
		s.window.answered(a.began, now, a.pieces)
		if m, ok := s.window.measure(now, s.concurrency.limit); ok {
			s.concurrency.measured(m)
			s.window = newWindow(now)
		}
	case fault.Is(err, fault.Throttled):
		if s.window.refusal(s.concurrency.limit) {
			s.concurrency.refused(now, s.inFlight)
			s.window = newWindow(now)
		}
	}
	if s.concurrency.limit == before {
		return false
	}
	s.window = newWindow(now)
	return true
}
