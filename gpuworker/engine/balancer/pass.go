package balancer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/fault"
	"rollout/shared/retry"
)

// maxBroken is how many times a request may be passed on whose connection broke before
// the answer began, although its server lived on.
const maxBroken = 2

// Pass passes a request to the server with the most room; see engine.Passer. It is tried
// on another server if one can't be reached or is full, and on servers to avoid last.
//
//	no connection               another server; this one is probed
//	429, 503                    another server; without one the client gets that answer
//	broken before an answer     the probe decides: died or fails for all ─▶ CrashError; else another server
//	5xx                         is passed on; if the probe fails, with X-Should-Retry: false
//	any other answer            is passed on
//
// A request that was in flight when its server died may be what killed it. It is not
// repeated, so that no second server dies of it.
//
// What the request meets charges no item: only a probe, which is the balancer's own
// question, sets a server aside. Passed requests count as load. They do not take part
// in the search for the number of requests at once, since their answers are not counted
// in tokens.
func (b *Balancer) Pass(ctx context.Context, r engine.RawRequest) (engine.RawAnswer, error) {
	tried := map[*server]bool{}
	var refusal *engine.RawAnswer
	var failed, received error // received is of a request that a server had
	for broken := 0; ; {
		q, err := b.beginPassed(r, tried)
		switch {
		case err == nil:
			if refusal != nil {
				_ = refusal.Body.Close()
				refusal = nil
			}
		case received != nil:
			if refusal != nil {
				_ = refusal.Body.Close()
			}
			return engine.RawAnswer{}, received
		case refusal != nil:
			return *refusal, nil
		case failed != nil:
			return engine.RawAnswer{}, failed
		default:
			return engine.RawAnswer{}, err
		}
		tried[q.server] = true
		a, err := q.pass(ctx, r)
		if err == nil {
			if a.Status != http.StatusTooManyRequests && a.Status != http.StatusServiceUnavailable {
				return a, nil
			}
			refusal = &a
			continue
		}
		failed = engine.WithServer(err, q.server.Name)
		if ctx.Err() != nil {
			return engine.RawAnswer{}, failed
		}
		if broke, retry := b.judgePassed(ctx, q, r, err); broke {
			broken++
			received = failed
			if retry != nil || broken == maxBroken {
				return engine.RawAnswer{}, errors.Join(retry, failed)
			}
		}
	}
}

// passed is a request in flight that is passed to a server.
type passed struct {
	*request
	balancer *Balancer
	body     []byte // names the model, for probes
	once     sync.Once
}

// beginPassed chooses an untried server and makes the request one in flight there.
func (b *Balancer) beginPassed(r engine.RawRequest, tried map[*server]bool) (*passed, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, fault.New(fault.Unavailable, "the worker's engine is closed")
	}
	var untried, preferred []string
	for _, s := range b.servers {
		if tried[s] {
			continue
		}
		untried = append(untried, s.Name)
		if !slices.Contains(r.Avoid, s.Name) {
			preferred = append(preferred, s.Name)
		}
	}
	if len(untried) == 0 {
		return nil, fault.New(fault.Unavailable, "no other inference server")
	}
	var s *server
	err := fault.New(fault.Unavailable, "no inference server")
	if len(preferred) > 0 {
		s, err = b.pick(preferred)
	}
	if err != nil {
		if s, err = b.pick(untried); err != nil {
			return nil, err
		}
	}
	q := &passed{request: newRequest().(*request), balancer: b, body: r.Body}
	q.request.begin(s, func() {}, time.Now())
	return q, nil
}

// pass sends the request to its server.
func (q *passed) pass(ctx context.Context, r engine.RawRequest) (engine.RawAnswer, error) {
	p, ok := q.server.Server.(engine.Passer)
	if !ok {
		q.finish(nil, 0)
		return engine.RawAnswer{}, fault.New(fault.Unavailable, "the server %s takes no online requests", q.server.Name)
	}
	a, err := p.Pass(ctx, r)
	if err != nil {
		q.finish(err, 0)
		return engine.RawAnswer{}, err
	}
	q.report()
	full := time.Duration(0)
	switch {
	case a.Status == http.StatusTooManyRequests, a.Status == http.StatusServiceUnavailable:
		full = max(retry.After(a.Header), time.Second)
	case a.Status >= http.StatusInternalServerError:
		cause := &engine.ServerError{Received: true,
			Err: fmt.Errorf("an online request was answered with status %d", a.Status)}
		if q.mayHaveKilled(ctx, q.balancer.startProbe(q.server, q.body, cause, probeTime)) {
			a.Header = a.Header.Clone()
			a.Header.Set("X-Should-Retry", "false")
		}
	}
	a.Server = q.server.Name
	a.Body = &passedBody{ReadCloser: a.Body, of: q, full: full, works: a.Status < http.StatusInternalServerError}
	return a, nil
}

// finish ends the request at the server, which refuses others for full. It may be called
// several times.
func (q *passed) finish(err error, full time.Duration) {
	q.once.Do(func() {
		b, s := q.balancer, q.server
		b.mu.Lock()
		defer b.mu.Unlock()
		now := time.Now()
		q.ended, q.endedAt = true, now
		s.signs.Add(1)
		if err == nil && full == 0 {
			s.answered = true
		}
		if full > 0 {
			s.fullUntil = now.Add(full)
		}
		s.window.addTime(now, s.inFlight)
		s.inFlight--
	})
}

// judgePassed finds out what a request met that got no answer. broke says that the server
// had it, and died is a fault with CrashError if the server died meanwhile.
func (b *Balancer) judgePassed(ctx context.Context, q *passed, r engine.RawRequest, err error) (
	broke bool, died error) {
	var serverErr *engine.ServerError
	if !errors.As(err, &serverErr) {
		return true, nil
	}
	p := b.startProbe(q.server, r.Body, err, probeTime)
	if !serverErr.Received {
		return false, nil // the probe goes on while others answer
	}
	if q.mayHaveKilled(ctx, p) {
		return true, &fault.Error{Kind: fault.Unavailable, Err: &engine.CrashError{Server: q.server.Name, Start: q.start}}
	}
	return true, nil
}

// mayHaveKilled waits for the result of a probe after the request failed. It reports whether
// the server has died, or fails for all, since the request began.
func (q *passed) mayHaveKilled(ctx context.Context, p *probe) bool {
	select {
	case <-p.done:
	case <-ctx.Done():
		return false
	}
	b, s := q.balancer, q.server
	b.mu.Lock()
	defer b.mu.Unlock()
	return s.incarnation != q.incarnation || s.breaker.setAside()
}

// passedBody is the body of an answer; its end is that of the request.
type passedBody struct {
	io.ReadCloser
	of    *passed
	full  time.Duration
	works bool
}

// Read implements io.Reader. Each piece is a sign that the server works.
func (p *passedBody) Read(buf []byte) (int, error) {
	n, err := p.ReadCloser.Read(buf)
	if n > 0 && p.works {
		p.of.report()
	}
	if err != nil && !errors.Is(err, io.EOF) && !fault.Is(err, fault.Canceled) {
		p.of.balancer.startProbe(p.of.server, p.of.body, err, probeTime)
	}
	return n, err
}

// Close ends the request.
func (p *passedBody) Close() error {
	p.of.finish(nil, p.full)
	return p.ReadCloser.Close()
}

// Silent probes the server of an answer that was cancelled because nothing of it came.
func (b *Balancer) Silent(name string, body []byte) {
	for _, s := range b.servers {
		if s.Name == name {
			b.startProbe(s, body, engine.ErrSilent, hangProbeTime)
		}
	}
}
