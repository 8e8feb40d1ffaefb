package balancer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
)

// fake is a server that tests switch between moods.
type fake struct {
	name string

	mu      sync.Mutex
	starts  int           // 0 while nobody is there
	fails   bool          // every answer is a 500
	hangs   bool          // no answer comes
	full    time.Duration // every request is refused, with that hint
	takes   time.Duration // an answer
	other   int           // requests of others that it works on
	silent  bool          // it has no metrics
	broken  chan struct{} // closed when connections break
	refusal time.Duration // until a connection is refused
	running int
	stall   time.Duration // of the way back of what it tells next
	asked   []string      // prompts, and "?" for the fleet's own questions
	looks   int
}

func newFake(name string) *fake { return &fake{name: name, starts: 1, broken: make(chan struct{})} }

func (s *fake) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// die breaks all connections and refuses new ones.
func (s *fake) die() {
	s.set(func() {
		s.starts = -s.starts
		close(s.broken)
		s.broken = make(chan struct{})
	})
}

// start starts the server again.
func (s *fake) start() { s.set(func() { s.starts = 1 - s.starts }) }

// drop breaks all connections, and the server lives on.
func (s *fake) drop() {
	s.set(func() {
		close(s.broken)
		s.broken = make(chan struct{})
	})
}

func (s *fake) questions() (own, asked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.asked {
		if q == "?" {
			own++
		}
	}
	return own, len(s.asked) - own
}

func trouble(inside bool, format string, args ...any) error {
	return fault.WithKind(fault.Unavailable, &engine.ServerError{Received: inside, Err: fmt.Errorf(format, args...)}, "POST")
}

func (s *fake) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	s.mu.Lock()
	prompt := "?"
	if !strings.Contains(string(r.Body), `"content":"hi"`) {
		prompt = string(r.Body)
	}
	s.asked = append(s.asked, prompt)
	starts, fails, hangs, full, takes, broken := s.starts, s.fails, s.hangs, s.full, s.takes, s.broken
	s.running++
	s.mu.Unlock()
	defer s.set(func() { s.running-- })
	switch {
	case starts <= 0:
		return engine.Answer{}, trouble(false, "connection refused")
	case full > 0:
		return engine.Answer{}, &fault.Error{Kind: fault.Throttled, Op: "full", RetryAfter: full}
	case fails || strings.Contains(string(r.Body), "bad"):
		return engine.Answer{}, &fault.Error{Kind: fault.Corrupt, Class: fault.Engine, Err: &engine.ServerError{Received: true, Err: errors.New("status 500")}}
	}
	if hangs {
		takes = 1000 * time.Hour
	}
	select {
	case <-time.After(takes):
	case <-broken: // of one answer all has arrived, and waits to be read
		if prompt != "arrived" {
			return engine.Answer{}, trouble(true, "EOF")
		}
		time.Sleep(time.Millisecond)
	case <-ctx.Done():
		return engine.Answer{}, fault.WithKind(fault.Canceled, context.Cause(ctx), "POST")
	}
	progress()
	return engine.Answer{Text: s.name}, nil
}

func (s *fake) Metrics(context.Context) (engine.ServerMetrics, error) {
	s.mu.Lock()
	s.looks++
	starts, refusal, stall := s.starts, s.refusal, s.stall
	v := engine.UnknownMetrics()
	if !s.silent {
		v.Start, v.Running, v.Waiting = fmt.Sprint(starts), float64(s.running+s.other), 0
	}
	s.stall = 0
	s.mu.Unlock()
	if starts <= 0 {
		time.Sleep(refusal)
		return engine.UnknownMetrics(), trouble(false, "connection refused")
	}
	time.Sleep(stall)
	return v, nil
}

func (s *fake) Ready(context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.starts <= 0 {
		return "", trouble(false, "connection refused")
	}
	return "model", nil
}

func (s *fake) Close() error { return nil }
