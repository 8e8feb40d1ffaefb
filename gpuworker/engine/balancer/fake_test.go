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

// fake is a server whose faults tests switch on and off.
type fake struct {
	name string

	mu           sync.Mutex
	starts       int           // 0 or less while it is down
	fails        bool          // every answer is a 500
	hangs        bool          // no answer comes
	full         time.Duration // every request is refused, with this hint
	takes        time.Duration // an answer
	denies       bool          // its key is wrong, as Ready says
	readyHangs   bool          // Ready gets no answer
	other        int           // requests of other workers in flight
	noMetrics    bool
	counts       bool    // it reports tokens
	tokens       float64 // that it reports
	cutAfter     time.Duration
	wholes       int           // requests that are not streamed
	deaf         bool          // it takes no new connections, as far as Listens says
	sign         time.Duration // between signs of work on a request; 0: none before its end
	broken       chan struct{} // closed when connections break
	refusal      time.Duration // until a connection is refused
	running      int
	metricsDelay time.Duration // of the next metrics on the way back
	asked        []string      // prompts, and "?" for the balancer's questions
	metricsCalls int
}

func newFake(name string) *fake { return &fake{name: name, starts: 1, broken: make(chan struct{})} }

func (s *fake) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// crash breaks all connections and refuses new ones.
func (s *fake) crash() {
	s.set(func() {
		s.starts = -s.starts
		close(s.broken)
		s.broken = make(chan struct{})
	})
}

// start starts the server again after a crash.
func (s *fake) start() { s.set(func() { s.starts = 1 - s.starts }) }

// breakConnections breaks all connections; the server stays up.
func (s *fake) breakConnections() {
	s.set(func() {
		close(s.broken)
		s.broken = make(chan struct{})
	})
}

// questions returns how many questions of the balancer and how many requests the
// server got.
func (s *fake) questions() (own, requests int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.asked {
		if q == "?" {
			own++
		}
	}
	return own, len(s.asked) - own
}

// tokensOfFake is how many tokens an answer has.
const tokensOfFake = 20

func unavailable(received bool, format string, args ...any) error {
	err := &engine.ServerError{Received: received, Err: fmt.Errorf(format, args...)}
	return fault.WithKind(fault.Unavailable, err, "POST")
}

func (s *fake) Answer(ctx context.Context, r engine.Request, progress func()) (engine.Answer, error) {
	s.mu.Lock()
	prompt := "?"
	if !strings.Contains(string(r.Body), `"content":"hi"`) {
		prompt = string(r.Body)
	}
	s.asked = append(s.asked, prompt)
	starts, fails, hangs, full, takes, broken, sign := s.starts, s.fails, s.hangs, s.full, s.takes, s.broken, s.sign
	s.running++
	cutAfter := s.cutAfter
	if r.Whole {
		s.wholes++
	}
	s.mu.Unlock()
	defer s.set(func() { s.running-- })
	switch {
	case starts <= 0:
		return engine.Answer{}, unavailable(false, "connection refused")
	case full > 0:
		return engine.Answer{}, &fault.Error{Kind: fault.Throttled, Op: "full", RetryAfter: full,
			Err: &engine.StatusError{Status: 429, Quota: true, Err: errors.New("pay first")}}
	case fails || strings.Contains(string(r.Body), "bad"):
		err := &engine.ServerError{Received: true, Err: errors.New("status 500")}
		return engine.Answer{}, &fault.Error{Kind: fault.Corrupt, Class: fault.Engine, Err: err}
	}
	if hangs {
		takes = 1000 * time.Hour
	}
	if cutAfter > 0 && takes > cutAfter && r.Whole {
		time.Sleep(cutAfter)
		return engine.Answer{}, unavailable(true, "EOF")
	}
	for ; sign > 0 && takes > sign; takes -= sign {
		time.Sleep(sign)
		progress()
	}
	select {
	case <-time.After(takes):
	case <-broken: // one answer has arrived as a whole, and waits to be read
		if prompt != "arrived" {
			return engine.Answer{}, unavailable(true, "EOF")
		}
		time.Sleep(time.Millisecond)
	case <-ctx.Done():
		return engine.Answer{}, fault.WithKind(fault.Canceled, context.Cause(ctx), "POST")
	}
	progress()
	s.set(func() { s.tokens += tokensOfFake })
	return engine.Answer{Text: s.name, Usage: engine.Usage{PromptTokens: 1, CompletionTokens: tokensOfFake}}, nil
}

func (s *fake) Metrics(ctx context.Context) (engine.ServerMetrics, error) {
	s.mu.Lock()
	if s.hangs {
		s.mu.Unlock()
		<-ctx.Done()
		return engine.UnknownMetrics(), fault.WithKind(fault.Canceled, context.Cause(ctx), "GET")
	}
	s.metricsCalls++
	starts, refusal, delay := s.starts, s.refusal, s.metricsDelay
	v := engine.UnknownMetrics()
	if !s.noMetrics {
		v.Start, v.Running, v.Waiting = fmt.Sprint(starts), float64(s.running+s.other), 0
		if s.counts {
			v.Tokens = s.tokens
		}
	}
	s.metricsDelay = 0
	s.mu.Unlock()
	if starts <= 0 {
		time.Sleep(refusal)
		return engine.UnknownMetrics(), unavailable(false, "connection refused")
	}
	time.Sleep(delay)
	return v, nil
}

func (s *fake) Ready(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readyHangs {
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		return "", fault.WithKind(fault.Canceled, ctx.Err(), "GET")
	}
	switch {
	case s.denies:
		return "", fault.New(fault.Denied, "who are you")
	case s.starts <= 0:
		return "", unavailable(false, "connection refused")
	}
	return "model", nil
}

func (s *fake) Close() error { return nil }

func (s *fake) Listens(context.Context) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starts > 0 && !s.deaf
}

// Break ends hanging requests, as a client does that closes their connections.
func (s *fake) Break() { s.breakConnections() }
