package fakellm

import (
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// minute is the requests of the last minute, with Faults.MinuteLimit or MinuteTokens.
type minute struct {
	sync.Mutex
	admitted []admitted // the oldest first
	tokens   int        // of all of them
}

// admitted is a request that was within the limits.
type admitted struct {
	at     time.Time
	tokens int
}

// beyondMinuteLimit counts the requests of the last minute and their tokens; nil without
// a limit.
func (s *Server) beyondMinuteLimit() func(*completion) bool {
	f := s.cfg.Faults
	if f.MinuteLimit == 0 && f.MinuteTokens == 0 {
		return nil
	}
	return func(q *completion) bool {
		tokens := 0
		if f.MinuteTokens > 0 {
			a := s.answer(q)
			tokens = a.asked + len(a.words)
		}
		m := &s.minute
		m.Lock()
		defer m.Unlock()
		now := time.Now()
		m.advance(now)
		if f.MinuteLimit > 0 && len(m.admitted) >= f.MinuteLimit || f.MinuteTokens > 0 && m.tokens+tokens > f.MinuteTokens {
			s.limited.Add(1)
			return true
		}
		m.admitted = append(m.admitted, admitted{now, tokens})
		m.tokens += tokens
		s.mostInMinute.Store(max(s.mostInMinute.Load(), int64(len(m.admitted))))
		return false
	}
}

// advance forgets what is older than a minute. The caller holds m.
func (m *minute) advance(now time.Time) {
	for len(m.admitted) > 0 && now.Sub(m.admitted[0].at) >= time.Minute {
		m.tokens -= m.admitted[0].tokens
		m.admitted = m.admitted[1:]
	}
}

// throttled refuses a request as a hosted API does whose limit is used up.
func (s *Server) throttled(w http.ResponseWriter, _ *http.Request, _ *completion) {
	f, m := s.cfg.Faults, &s.minute
	m.Lock()
	wait := time.Second // for a request that needs more than the whole limit
	if len(m.admitted) > 0 {
		wait = time.Minute - time.Since(m.admitted[0].at)
	}
	message := fmt.Sprintf("Rate limit reached for requests per min (RPM): Limit %d", f.MinuteLimit)
	if f.MinuteLimit == 0 || len(m.admitted) < f.MinuteLimit {
		message = fmt.Sprintf("Rate limit reached for tokens per min (TPM): Limit %d", f.MinuteTokens)
	}
	m.Unlock()
	s.stateLimits(w)
	w.Header().Set("Retry-After", strconv.Itoa(1+int(wait.Seconds())))
	writeError(w, http.StatusTooManyRequests, "rate_limit_exceeded", message)
}

// stateLimits adds the headers that state the limits, with Faults.LimitHeaders.
func (s *Server) stateLimits(w http.ResponseWriter) {
	f, m := s.cfg.Faults, &s.minute
	if !f.LimitHeaders {
		return
	}
	m.Lock()
	defer m.Unlock()
	now := time.Now()
	m.advance(now)
	reset := time.Duration(0) // until nothing is used
	if n := len(m.admitted); n > 0 {
		reset = time.Minute - now.Sub(m.admitted[n-1].at)
	}
	for _, l := range []struct {
		of          string
		limit, used int
	}{{"Requests", f.MinuteLimit, len(m.admitted)}, {"Tokens", f.MinuteTokens, m.tokens}} {
		if l.limit > 0 {
			w.Header().Set("X-Ratelimit-Limit-"+l.of, strconv.Itoa(l.limit))
			w.Header().Set("X-Ratelimit-Remaining-"+l.of, strconv.Itoa(l.limit-l.used))
			w.Header().Set("X-Ratelimit-Reset-"+l.of, reset.Round(time.Millisecond).String())
		}
	}
}
