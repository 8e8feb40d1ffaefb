package balancer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"rollout/gpuworker/engine"
	"rollout/gpuworker/engine/internal/rawjson"
	"rollout/shared/fault"
)

// Times of finding out.
const (
	inquiryTime  = 2 * time.Second  // for all of it
	hangTime     = 10 * time.Second // for a question to a server that a request hung on
	questionTime = 10 * time.Second // for a question to a server that was away
	firstPause   = 100 * time.Millisecond
)

// probe is what became of a server in trouble; all requests in trouble
// share one.
type probe struct{ done chan struct{} }

// attribute says whose fault a request's fault is.
func (f *Balancer) attribute(ctx context.Context, a *ask, r engine.Request, err error) error {
	s := a.server
	if ctx.Err() != nil {
		if fault.ClassOf(context.Cause(ctx)) == fault.Timeout {
			return f.hung(a, f.startProbe(s, r.Body, err, hangTime), err)
		}
		return err
	}
	if fault.Is(err, fault.Throttled) {
		return f.throttled(s, err)
	}
	var trouble *engine.ServerError
	if !errors.As(err, &trouble) {
		return err
	}
	select {
	case <-f.startProbe(s, r.Body, err, inquiryTime).done:
	case <-ctx.Done():
		return fault.WithKind(fault.Canceled, errors.Join(context.Cause(ctx), err), "ask what became of the inference server %s", s.Name)
	}
	f.mu.Lock()
	died, away := s.incarnation != a.life, s.breaker.away()
	f.mu.Unlock()
	switch {
	case died && trouble.Received:
		died := &engine.CrashError{Server: s.Name, Start: a.start, Solo: a.alone}
		return &fault.Error{Kind: fault.Unavailable, Err: fmt.Errorf("%w: %w", err, died)}
	case away && !fault.Is(err, fault.Unavailable):
		return fault.WithKind(fault.Unavailable, err, "the inference server %s fails for everybody", s.Name)
	}
	return err
}

// hung says that whose fault it is will be known. Its caller's ctx has ended,
// and decides how long that is waited for.
func (f *Balancer) hung(a *ask, q *probe, err error) error {
	s, life := a.server, a.life
	return fault.WithKind(fault.Canceled, &engine.HangError{Err: err, ServerAtFault: func(ctx context.Context) bool {
		select {
		case <-q.done:
		case <-ctx.Done():
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		return s.breaker.away() || s.incarnation != life
	}}, "the inference server %s", s.Name)
}

// throttled drops the hint of a server that is full if another one has room.
func (f *Balancer) throttled(s *server, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for _, o := range f.servers {
		if o != s && !o.breaker.away() && o.rank(now) == 0 {
			return &fault.Error{Kind: fault.Throttled, Op: err.Error()}
		}
	}
	return err
}

// overInquiry is one that needs no waiting for.
func overInquiry() *probe {
	q := &probe{make(chan struct{})}
	close(q.done)
	return q
}

// startProbe finds out what became of a server in trouble, if nobody does yet and
// it is not known.
func (f *Balancer) startProbe(s *server, body []byte, why error, patience time.Duration) *probe {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.probe != nil {
		return s.probe
	}
	if f.closed || !s.breaker.trouble() {
		return overInquiry()
	}
	q := &probe{make(chan struct{})}
	s.probe, s.why = q, why
	question := questionFor(body)
	f.work.Go(func() {
		defer close(q.done)
		became := f.findOut(s, question, patience)
		f.conclude(s, became)
		if became != works {
			f.work.Go(func() { f.recover(s, question) })
		}
	})
	return q
}

// probeResult is what became of a server.
type probeResult string

const (
	works  probeResult = "works"  // it answers questions
	fails  probeResult = "fails"  // it is there, and answers none
	gone   probeResult = "gone"   // nobody is there
	reborn probeResult = "reborn" // it was started anew
)

// conclude acts on what became of a server.
func (f *Balancer) conclude(s *server, b probeResult) {
	f.mu.Lock()
	s.probe = nil
	s.breaker.answered(b == works)
	if b == gone {
		s.incarnation++
		s.start = ""
	}
	changed, closed, why := f.toldAnew(), f.closed, s.why
	f.mu.Unlock()
	if changed {
		f.tell()
	}
	if b != works && !closed {
		f.log.Warn("inference server gets no requests until it answers again", "server", s.Name, "it", string(b), "error", why)
	}
}

// findOut asks a server what it tells of itself, and a question, up to three
// times. Signs of work on requests are an answer, too, but none once a
// connection broke: what had arrived before is still read then. Who has not
// answered the question in time may have much to do, unless patience was for a
// hang.
func (f *Balancer) findOut(s *server, question engine.Request, patience time.Duration) probeResult {
	ctx, cancel := context.WithTimeout(f.ctx, patience)
	defer cancel()
	pause := firstPause
	for round := range 3 {
		signs := s.signs.Load()
		f.mu.Lock()
		life := s.incarnation
		f.mu.Unlock()
		err := f.look(ctx, s)
		f.mu.Lock()
		anew := s.incarnation != life
		f.mu.Unlock()
		if anew {
			return reborn
		}
		there := err == nil
		if there {
			_, err = s.Server.Answer(ctx, question, func() {})
		}
		var trouble *engine.ServerError
		broke := errors.As(err, &trouble) && fault.Is(err, fault.Unavailable)
		switch {
		case broke && !trouble.Received:
			return gone
		case err == nil, fault.Is(err, fault.Invalid), fault.Is(err, fault.Denied), fault.Is(err, fault.Throttled):
			return works
		case s.signs.Load() != signs && (!broke || round > 0):
			return works
		case ctx.Err() != nil && there && patience == inquiryTime:
			return works
		case ctx.Err() != nil:
			return fails
		}
		sleep(ctx, pause)
		pause *= 4
	}
	return fails
}

// recover asks a server that is away until it answers a question.
func (f *Balancer) recover(s *server, question engine.Request) {
	for {
		f.mu.Lock()
		wait := s.breaker.wait
		f.mu.Unlock()
		if !sleep(f.ctx, wait) {
			return
		}
		f.mu.Lock()
		s.breaker.waited()
		f.mu.Unlock()
		err := f.question(s, question)
		f.mu.Lock()
		s.breaker.answered(err == nil)
		if err != nil {
			s.why = err
		} else {
			s.window = newWindow(time.Now())
		}
		changed := f.toldAnew()
		f.mu.Unlock()
		if changed {
			f.tell()
		}
		if err == nil {
			f.log.Info("inference server answers again", "server", s.Name)
			return
		}
	}
}

// question asks one; nil if the server answers it. Invalid and Denied are
// answers, but a server that is loading may say that it is full.
func (f *Balancer) question(s *server, question engine.Request) error {
	ctx, cancel := context.WithTimeout(f.ctx, questionTime)
	defer cancel()
	if err := f.look(ctx, s); err != nil {
		return err
	}
	_, err := s.Server.Answer(ctx, question, func() {})
	if fault.Is(err, fault.Invalid) || fault.Is(err, fault.Denied) {
		return nil
	}
	return err
}

// look asks a server for its vitals and keeps what it tells.
func (f *Balancer) look(ctx context.Context, s *server) error {
	_, err := f.fetchMetrics(ctx, s)
	return err
}

// fetchMetrics asks a server for its vitals and keeps what it tells, unless it is
// known by now that it lives another life.
func (f *Balancer) fetchMetrics(ctx context.Context, s *server) (engine.ServerMetrics, error) {
	f.mu.Lock()
	life := s.incarnation
	f.mu.Unlock()
	v, err := s.Server.Metrics(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && s.incarnation == life {
		s.tells(v)
	}
	return v, err
}

// questionFor is the smallest question to the model that a request is for.
func questionFor(body []byte) engine.Request {
	model := []byte(`""`)
	// A body that is not JSON is asked about without a model: the server's
	// refusal is an answer, too.
	_ = rawjson.Members(body, func(name, v []byte) error {
		if string(name) == "model" {
			model = v
		}
		return nil
	})
	return engine.Request{Endpoint: engine.Chat,
		Body: fmt.Appendf(nil, `{"model":%s,"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"temperature":0}`, model)}
}

// sleep waits; false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
