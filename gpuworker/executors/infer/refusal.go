package infer

import (
	"sync"
	"sync/atomic"
	"time"

	"rollout/shared/fault"
)

// Requests that the engine throttles are repeated with
// backoff. An engine that has refused all requests for maxRefusal counts as
// unavailable: its shards are released for other workers, and its worker pulls
// none until the next try is due.
const (
	maxRefusal  = 5 * time.Minute
	minNextTry  = 30 * time.Second // between tries of an engine that counts as unavailable
	maxIdleTime = maxRefusal       // without requests; after it a refusal begins a new series
)

// refusal tracks a series of refusals without an answer in between. The zero
// value is an engine that refuses nothing. It is safe for concurrent use.
type refusal struct {
	active atomic.Bool // a series is under way
	mu     sync.Mutex
	since  time.Time // of the first refusal in the series
	until  time.Time // when the next try is due
	last   error
}

// answered ends the series: the engine answered a request.
func (r *refusal) answered() {
	if !r.active.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since, r.last = time.Time{}, nil
	r.active.Store(false)
}

// refused adds a refusal with the engine's retry hint, and returns for how long
// all requests have been refused. After a time without requests it begins a new
// series.
func (r *refusal) refused(now time.Time, hint time.Duration, err error) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.active.Load() || now.Sub(r.until) > maxIdleTime {
		r.since = now
		r.active.Store(true)
	}
	r.until, r.last = now.Add(min(max(hint, minNextTry), maxRefusal)), err
	return now.Sub(r.since)
}

// unavailable returns the fault of an engine that counts as unavailable because
// of its refusals, until the next try is due.
func (r *refusal) unavailable(now time.Time) error {
	if !r.active.Load() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil || now.Sub(r.since) < maxRefusal || !now.Before(r.until) {
		return nil
	}
	return fault.WithKind(fault.Unavailable, r.last, "the engine has refused all requests for %s",
		now.Sub(r.since).Round(time.Second))
}
