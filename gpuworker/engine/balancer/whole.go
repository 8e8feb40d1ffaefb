package balancer

import (
	"context"
	"errors"
	"net/http"
	"time"

	"rollout/gpuworker/engine"
	"rollout/shared/core/liveness"
	"rollout/shared/fault"
)

// Stream says which requests are streamed.
type Stream string

// The values of Stream. Auto asks for whole answers where something shows that the
// server works on them: see package liveness.
const (
	Auto   Stream = ""
	Always Stream = "always"
	Never  Stream = "never"
)

const (
	defaultSilence = 2 * time.Minute
	// Metrics are fetched at most once in fetchShare times as long as a fetch takes, for
	// servers whose page is large, but at least every longestFetch, and fetchesInSilence
	// times in the longest silence of a request.
	fetchShare       = 20
	longestFetch     = 15 * time.Second
	fetchesInSilence = 4
	// A server that reports nothing is asked again, in case that its counters begin with
	// its first request, as SGLang's do.
	firstAskWait = 2 * time.Second
	lastAskWait  = 10 * time.Minute
)

// begin makes the request one in flight on the server, and returns it as it is sent:
// streamed or whole. The caller holds b.mu.
func (b *Balancer) begin(q *request, s *server, r engine.Request, progress func()) engine.Request {
	now := time.Now()
	q.begin(s, progress, now)
	switch r.Endpoint {
	case engine.Chat, engine.Completion, engine.Responses:
	default:
		return r // its answer is whole in any case
	}
	q.generates, q.live = true, s.live.Begin(r.Model, r.MaxTokens, now)
	switch {
	case r.Whole, r.Options != nil && r.Options.Whole, b.stream == Never:
		q.live.Whole = true
	case r.Streamed, b.stream == Always:
		q.live.Whole = false
	default:
		q.chosen = q.live.Whole
	}
	if r.Whole = q.live.Whole; r.Whole {
		s.whole[q] = struct{}{}
	}
	return r
}

// readCounters tells the server's liveness what it reports, and vouches for its whole
// requests if that shows work. The caller holds the Balancer's mutex.
func (s *server) readCounters(v engine.ServerMetrics, asked time.Time) {
	before := s.readAt
	s.readAt = asked
	worked := s.live.Read(liveness.Reading{Start: v.Start, Running: v.Running, Waiting: v.Waiting,
		Tokens: v.Tokens, Steps: v.Steps})
	if !worked || !s.live.Counted() {
		return
	}
	s.signs.Add(1)
	if before.After(s.failingSince) { // else the work may have been done before the failure
		s.progress.Add(1)
	}
	s.vouch(time.Now())
}

// vouch reports progress for the whole requests that the server's liveness vouches for.
// The caller holds the Balancer's mutex.
func (s *server) vouch(now time.Time) {
	for q := range s.whole {
		if s.live.Vouches(q.live, now, s.inFlight) {
			q.callersHook()
		}
	}
}

// watchWhole vouches for the whole requests of a server without counters, and logs when
// the way changes in which the server is watched.
func (b *Balancer) watchWhole(s *server, now time.Time) {
	b.mu.Lock()
	counted := s.live.Counted()
	changed := counted != s.counted
	s.counted = counted
	if !counted {
		s.vouch(now)
	}
	b.mu.Unlock()
	switch {
	case !changed || b.stream != Auto:
	case counted:
		b.log.Info("answers with max_tokens are not streamed: the inference server's counters show that it works",
			"server", s.Name)
	default:
		b.log.Info("the inference server's counters no longer show that it works", "server", s.Name)
	}
}

// withEstimate adds to the fault of a whole request what it may have cost. The caller
// holds the Balancer's mutex.
func (q *request) withEstimate(ctx context.Context, err error) error {
	var s *engine.ServerError
	switch {
	case err == nil, !q.live.Whole, engine.UsageOf(err) != (engine.Usage{}):
		return err
	case ctx.Err() != nil, fault.Is(err, fault.Unavailable) && errors.As(err, &s) && s.Received:
	default: // it was refused
		return err
	}
	n := q.server.live.Generated(q.live, q.endedAt)
	if n == 0 {
		return err
	}
	return &engine.PartialUsage{Usage: engine.Usage{CompletionTokens: n, Unknown: true}, Err: err}
}

// asCut adds engine.WholeError to the fault of a request that may have been cut off for
// its age, on a server that works.
func (b *Balancer) asCut(q *request, model string, err error) error {
	if !q.chosen || !mayBeCut(err) {
		return err
	}
	b.mu.Lock()
	streamed := q.server.live.Streams(model)
	cut := q.server.live.Cut(q.live, q.endedAt)
	streams := q.server.live.Streams(model)
	b.mu.Unlock()
	if streams && !streamed {
		b.log.Warn("whole answers are cut off again and again at one age; answers are streamed from now on",
			"server", q.server.Name, "age", q.endedAt.Sub(q.began).Round(time.Second), "error", err)
	}
	if !cut {
		return err
	}
	return &engine.WholeError{Err: err}
}

// mayBeCut reports whether a fault may be that of a gateway that gave up: a broken
// connection, or such a status.
func mayBeCut(err error) bool {
	var s *engine.StatusError
	if !errors.As(err, &s) {
		return fault.Is(err, fault.Unavailable)
	}
	switch s.Status {
	case http.StatusRequestTimeout, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
		499, 520, 522, 524: // nginx; Cloudflare
		return true
	}
	return false
}

// falseAlarm records that a request was cancelled for its silence although the server
// works.
func (b *Balancer) falseAlarm(s *server, q liveness.Request, model string) {
	b.mu.Lock()
	streamed := s.live.Streams(model)
	s.live.FalseAlarm(q, time.Now())
	streams := s.live.Streams(model)
	b.mu.Unlock()
	if streams && !streamed {
		b.log.Warn("whole answers came to a stop although the inference server works; they are streamed from now on",
			"server", s.Name)
	}
}
