package balancer

import (
	"slices"
	"sync/atomic"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/core/liveness"
	"rollout/shared/fault"
)

// server is a backend and its state. The Balancer's mutex guards all fields but
// progress and signs.
type server struct {
	Backend
	breaker     breaker
	probe       *probe            // under way; nil otherwise
	concurrency *concurrencyLimit // nil if the caller's number is fixed
	window      window
	inFlight    int
	watching    bool      // its metrics are being fetched
	silent      bool      // it reported nothing when it was asked last
	exclusive   bool      // it is reserved for an exclusive request
	fullUntil   time.Time // it throttled a request; others are preferred until then
	lastErr     error
	waiting     int // in its queue, as it reported last; negative if it does not

	silence time.Duration // the longest of a request
	live    *liveness.Server
	whole   map[*request]struct{} // the requests in flight that are not streamed
	counted bool                  // that its counters are used is in the log
	readAt  time.Time             // when the metrics were asked for that were stored last
	fetchAt time.Time             // when metrics may be fetched again
	askWait time.Duration         // before a server that reported nothing is asked again

	// Each start of the server is an incarnation. The start is its name, if the
	// server reports one.
	incarnation int
	start       string

	// The episode of failures since the breaker was closed.
	failingSince time.Time     // the first failure
	settled      chan struct{} // closed when it is known how the episode ends; nil if it is, or there is none

	answered bool // since its start, as far as that is known
	// What watch saw: since when the server has shown no sign of work, and how often in
	// a row its port was closed then.
	signsSeen int64
	quiet     time.Time
	closed    int
	checking  bool      // its port is being checked
	checkAt   time.Time // when it may be checked again

	progress atomic.Int64 // signs of work on requests, without those that an error gives as well
	signs    atomic.Int64 // all signs, and ends of requests
}

// minuteWait is the least wait that a server wants if a limit of a minute is used up.
const minuteWait = 10 * time.Second

// ofMinute reports whether a server refused a request because of what it was asked in
// the minute before, which says nothing of the requests at once.
func ofMinute(err error) bool {
	r := engine.RateLimitOf(err)
	return r.Refused && !r.AtOnce && r.Wait >= minuteWait
}

// isOneOf reports whether the server is one of the named; nil names all.
func (s *server) isOneOf(names []string) bool { return names == nil || slices.Contains(names, s.Name) }

// before reports whether s should get a request rather than o.
func (s *server) before(o *server, now time.Time) bool {
	if a, b := s.rank(now), o.rank(now); a != b {
		return a < b
	}
	return s.load() < o.load()
}

// rank orders servers by preference; 0 is best.
func (s *server) rank(now time.Time) int {
	switch {
	case s.breaker.state == Probing:
		return 2
	case now.Before(s.fullUntil):
		return 1
	}
	return 0
}

// load is the requests in flight, in relation to the server's limit.
func (s *server) load() float64 {
	if s.concurrency == nil {
		return float64(s.inFlight)
	}
	return float64(s.inFlight+1) / float64(s.concurrency.limit)
}

// storeMetrics stores what the server reports, when it was asked at that time. Another
// start than before is a new incarnation. The caller holds the Balancer's mutex.
func (s *server) storeMetrics(v engine.ServerMetrics, asked time.Time) {
	s.waiting, s.silent = int(v.Waiting), v == engine.UnknownMetrics()
	s.readCounters(v, asked)
	if v.Start == "" || v.Start == s.start {
		return
	}
	if s.start != "" {
		s.settle(true)
	}
	s.start = v.Start
}

// request is one request in flight; its memory is reused.
type request struct {
	server      *server
	began       time.Time
	incarnation int    // of the server, when the request began
	start       string // of the server, when the request began
	live        liveness.Request
	generates   bool // its answer has tokens
	chosen      bool // that it is whole is the Balancer's choice
	endedAt     time.Time
	solo        bool // the server has worked on nothing else, as far as it reports that
	ended       bool
	held        bool // its fault was held until it was known whether the server dies
	pieces      int64
	callersHook func() // the caller's progress
	report      func() // the progress that the server gets
}

func newRequest() any {
	q := &request{}
	q.report = q.progress
	return q
}

func (b *Balancer) release(q *request) {
	*q = request{report: q.report}
	b.requests.Put(q)
}

func (q *request) progress() {
	q.pieces++
	q.server.signs.Add(1)
	if q.pieces > errorPieces {
		q.server.progress.Add(1)
	}
	q.callersHook()
}

// errorPieces is how many pieces an answer may have that is an error after a status
// 200: its headers and an event. A server whose engine is dead answers so.
const errorPieces = 2

// begin makes the request one in flight on the server. The caller holds the
// Balancer's mutex.
func (q *request) begin(s *server, progress func(), now time.Time) {
	q.server, q.callersHook, q.began, q.incarnation, q.start = s, progress, now, s.incarnation, s.start
	s.window.addTime(now, s.inFlight)
	s.inFlight++
}

// end ends the request and reports whether the server's limit changed. The caller
// holds the Balancer's mutex.
func (q *request) end(now time.Time, u engine.Usage, err error) (limitChanged bool) {
	s := q.server
	q.ended, q.endedAt = true, now
	delete(s.whole, q)
	s.signs.Add(1)
	if err == nil {
		s.answered = true
		s.progress.Add(1)
		if q.generates {
			s.live.Answered(q.live, u.CompletionTokens, !u.Unknown, now, s.inFlight)
		}
	}
	s.window.addTime(now, s.inFlight)
	s.inFlight--
	if fault.Is(err, fault.Throttled) {
		s.fullUntil = now.Add(max(fault.RetryAfter(err), time.Second))
	}
	if s.concurrency == nil {
		return false
	}
	before := s.concurrency.limit
	switch {
	case err == nil:
		work := q.pieces
		if !u.Unknown && u.CompletionTokens > 0 { // as many, streamed or whole
			work = u.CompletionTokens
		}
		s.window.addAnswer(q.began, now, work)
		if m, ok := s.window.measure(now, s.concurrency.limit); ok {
			s.concurrency.addMeasure(m)
			s.window = newWindow(now)
		}
	case fault.Is(err, fault.Throttled) && !ofMinute(err):
		if s.window.addRefusal(s.concurrency.limit) {
			s.concurrency.addRefusals(now, s.inFlight)
			s.window = newWindow(now)
		}
	}
	if s.concurrency.limit == before {
		return false
	}
	s.window = newWindow(now)
	return true
}
