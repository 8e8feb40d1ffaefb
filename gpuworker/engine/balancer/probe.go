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

// Times of probes.
const (
	probeTime      = 2 * time.Second  // after a failed request
	hangProbeTime  = 10 * time.Second // after a request that hung
	questionTime   = 10 * time.Second // for a question to a server that was set aside
	firstProbeWait = 100 * time.Millisecond
)

// probe is a probe of one server. All requests that fail during it share its
// result. Done is closed when the result is in the server's state.
type probe struct{ done chan struct{} }

// attribute returns the fault of a failed request after it has found out whether
// the request or the server is at fault.
func (b *Balancer) attribute(ctx context.Context, q *request, r engine.Request, err error) error {
	s := q.server
	if ctx.Err() != nil {
		if fault.ClassOf(context.Cause(ctx)) == fault.Timeout {
			q.chosen = q.chosen && errors.Is(context.Cause(ctx), engine.ErrSilent)
			return b.hang(q, b.startProbe(s, r.Body, err, hangProbeTime), r.Model, err)
		}
		return err
	}
	if fault.Is(err, fault.Throttled) {
		return b.asCut(q, r.Model, b.throttled(s, err))
	}
	var serverErr *engine.ServerError
	if !errors.As(err, &serverErr) {
		return err
	}
	select {
	case <-b.startProbe(s, r.Body, err, probeTime).done:
	case <-ctx.Done():
		return fault.WithKind(fault.Canceled, errors.Join(context.Cause(ctx), err), "probe the inference server %s", s.Name)
	}
	b.awaitEpisode(ctx, q)
	if ctx.Err() != nil {
		return fault.WithKind(fault.Canceled, errors.Join(context.Cause(ctx), err), "probe the inference server %s", s.Name)
	}
	b.mu.Lock()
	crashed, setAside := s.incarnation != q.incarnation, s.breaker.setAside()
	if q.held {
		setAside = true
	}
	b.mu.Unlock()
	switch {
	case crashed && serverErr.Received:
		crash := &engine.CrashError{Server: s.Name, Start: q.start, Solo: q.solo}
		return &fault.Error{Kind: fault.Unavailable, Err: fmt.Errorf("%w: %w", err, crash)}
	case setAside:
		return &fault.Error{Kind: fault.Unavailable, Err: fmt.Errorf("%w: %w", engine.ErrFailsForAll, err)}
	}
	return b.asCut(q, r.Model, err)
}

// holdTime bounds how long the fault of a request is held until it is known how the
// failures of its server end. A vLLM whose engine dies answers errors for 5 s.
const holdTime = 10 * time.Second

// awaitEpisode waits, for holdTime at most, until it is known whether a server that
// fails for all requests dies, if the request was in flight at the first failure: then
// the server may die of it, and the request must not go to another one.
func (b *Balancer) awaitEpisode(ctx context.Context, q *request) {
	s := q.server
	b.mu.Lock()
	settled := s.settled
	q.held = settled != nil && s.answered && q.began.Before(s.failingSince)
	b.mu.Unlock()
	if !q.held {
		return
	}
	t := time.NewTimer(holdTime)
	defer t.Stop()
	select {
	case <-settled:
	case <-t.C:
	case <-ctx.Done():
	}
}

// settle ends an episode of failures: the server died in it, or not. The caller holds
// the Balancer's mutex.
func (s *server) settle(died bool) {
	if died {
		s.incarnation++
		s.start, s.answered = "", false
	}
	if s.settled != nil {
		close(s.settled)
		s.settled = nil
	}
}

// hang returns the fault of a request that hung, with the probe's result to come.
// The caller's context has ended; it decides how long to wait for the result.
func (b *Balancer) hang(q *request, p *probe, model string, err error) error {
	s, incarnation, live, chosen := q.server, q.incarnation, q.live, q.chosen
	serverAtFault := func(ctx context.Context) bool {
		select {
		case <-p.done:
		case <-ctx.Done():
		}
		b.mu.Lock()
		atFault := s.breaker.setAside() || s.incarnation != incarnation
		b.mu.Unlock()
		if chosen && !atFault {
			b.falseAlarm(s, live, model)
		}
		return atFault
	}
	return fault.WithKind(fault.Canceled, &engine.HangError{Err: err, ServerAtFault: serverAtFault, Whole: chosen},
		"the inference server %s", s.Name)
}

// throttled drops the retry hint of a full server if another server has room.
func (b *Balancer) throttled(s *server, err error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	var e *fault.Error
	for _, o := range b.servers {
		if o != s && !o.breaker.setAside() && o.rank(now) == 0 && errors.As(err, &e) {
			without := *e
			without.RetryAfter = 0
			return &without
		}
	}
	return err
}

// finishedProbe returns a probe whose result is known.
func finishedProbe() *probe {
	p := &probe{make(chan struct{})}
	close(p.done)
	return p
}

// startProbe probes a server after the failure cause, or returns the probe under
// way. A server that is set aside needs none. Body is the failed request's, which
// names the model.
func (b *Balancer) startProbe(s *server, body []byte, cause error, limit time.Duration) *probe {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s.probe != nil {
		return s.probe
	}
	if b.closed || !s.breaker.failed() {
		return finishedProbe()
	}
	p := &probe{make(chan struct{})}
	s.probe, s.lastErr, s.failingSince = p, cause, time.Now()
	question := questionFor(body)
	b.work.Go(func() {
		defer close(p.done)
		result := b.runProbe(s, question, limit)
		b.conclude(s, result)
		if result != works {
			b.work.Go(func() { b.recover(s, question) })
		}
	})
	return p
}

// probeResult is what a probe found.
type probeResult string

const (
	works     probeResult = "works"  // it answers questions
	fails     probeResult = "fails"  // it can be reached and answers none
	gone      probeResult = "gone"   // it refuses connections
	restarted probeResult = "reborn" // it has restarted
)

// conclude puts a probe's result into the server's state.
func (b *Balancer) conclude(s *server, result probeResult) {
	b.mu.Lock()
	s.probe = nil
	s.breaker.probed(result == works)
	switch result {
	case gone:
		s.settle(true)
	case fails:
		s.settled = make(chan struct{})
	}
	changed, closed, lastErr := b.limitChanged(), b.closed, s.lastErr
	b.mu.Unlock()
	if changed {
		b.announceLimit()
	}
	if result != works && !closed {
		b.log.Warn("inference server gets no requests until it answers again",
			"server", s.Name, "it", string(result), "error", lastErr)
	}
}

// runProbe asks a server for its metrics and a question, up to three times.
//
// Progress on other requests proves that it works, but not in the round in which
// a connection broke: what had arrived before the break is still being read then.
// If the time ends during the question, a server that can be reached may just
// have much to do, and counts as working; after a hang it counts as failing.
func (b *Balancer) runProbe(s *server, question engine.Request, limit time.Duration) probeResult {
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	pause := firstProbeWait
	for round := range 3 {
		progress := s.progress.Load()
		b.mu.Lock()
		incarnation := s.incarnation
		b.mu.Unlock()
		_, err := b.fetchMetrics(ctx, s)
		b.mu.Lock()
		hasRestarted := s.incarnation != incarnation
		b.mu.Unlock()
		if hasRestarted {
			return restarted
		}
		reachable := err == nil
		if reachable {
			_, err = s.Server.Answer(ctx, question, func() {})
		}
		var serverErr *engine.ServerError
		broke := errors.As(err, &serverErr) && fault.Is(err, fault.Unavailable)
		switch {
		case broke && !serverErr.Received:
			return gone
		case err == nil, fault.Is(err, fault.Invalid), fault.Is(err, fault.Denied), fault.Is(err, fault.Throttled):
			return works
		case s.progress.Load() != progress && (!broke || round > 0):
			return works
		case ctx.Err() != nil && reachable && limit == probeTime:
			return works
		case ctx.Err() != nil:
			return fails
		}
		sleep(ctx, pause)
		pause *= 4
	}
	return fails
}

// recover asks a server that is set aside until it answers a question.
func (b *Balancer) recover(s *server, question engine.Request) {
	for {
		b.mu.Lock()
		wait := s.breaker.wait
		b.mu.Unlock()
		if !sleep(b.ctx, wait) {
			return
		}
		b.mu.Lock()
		s.breaker.waited()
		b.mu.Unlock()
		err := b.ask(s, question)
		b.mu.Lock()
		s.breaker.probed(err == nil)
		switch {
		case err == nil:
			s.window = newWindow(time.Now())
			s.settle(false)
			s.answered = true
		case s.settled != nil && refusesConnections(err):
			s.settle(true)
			s.lastErr = err
		default:
			s.lastErr = err
		}
		changed := b.limitChanged()
		b.mu.Unlock()
		if changed {
			b.announceLimit()
		}
		if err == nil {
			b.log.Info("inference server answers again", "server", s.Name)
			return
		}
	}
}

// refusesConnections reports whether the server could not be reached.
func refusesConnections(err error) bool {
	var e *engine.ServerError
	return errors.As(err, &e) && fault.Is(err, fault.Unavailable) && !e.Received
}

// ask asks a server a question. Invalid and Denied count as answers. Throttled
// does not: a server that is loading may say that it is full.
func (b *Balancer) ask(s *server, question engine.Request) error {
	ctx, cancel := context.WithTimeout(b.ctx, questionTime)
	defer cancel()
	if _, err := b.fetchMetrics(ctx, s); err != nil {
		return err
	}
	_, err := s.Server.Answer(ctx, question, func() {})
	if fault.Is(err, fault.Invalid) || fault.Is(err, fault.Denied) {
		return nil
	}
	return err
}

// fetchMetrics asks a server for its metrics and stores them, unless the server
// has restarted meanwhile.
func (b *Balancer) fetchMetrics(ctx context.Context, s *server) (engine.ServerMetrics, error) {
	b.mu.Lock()
	incarnation := s.incarnation
	b.mu.Unlock()
	asked := time.Now()
	v, err := s.Server.Metrics(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	s.planFetch(asked, time.Now())
	if err == nil && s.incarnation == incarnation {
		s.storeMetrics(v, asked)
	}
	return v, err
}

// questionFor returns the smallest question to the model that the request body
// names. Without a model in the body, the server's refusal is an answer too.
func questionFor(body []byte) engine.Request {
	model := []byte(`""`)
	_ = rawjson.Members(body, func(name, v []byte) error {
		if string(name) == "model" {
			model = v
		}
		return nil
	})
	const format = `{"model":%s,"messages":[{"role":"user","content":"hi"}],"max_tokens":1,"temperature":0}`
	return engine.Request{Endpoint: engine.Chat, Body: fmt.Appendf(nil, format, model)}
}

// sleep waits for d. It returns false if ctx ended first.
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
