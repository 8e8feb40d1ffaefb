package infer

import (
	"sync"
	"sync/atomic"
	"time"

	"rollout/shared/fault"
)

// An engine that refuses requests, as too many or for now, is asked on, with
// back-off. One that has refused everything for long is away like one that is
// not there: its shards go back for others to try, and its worker pulls none
// until it is time to ask again.
const (
	maxRefusal = 5 * time.Minute  // of everything, before shards go back
	nextAsk    = 30 * time.Second // at least, between two asks of an engine that is away so
)

// refusal is what an engine refuses. The zero value is of one that refuses
// nothing. Safe for concurrent use.
type refusal struct {
	some  atomic.Bool // since is set
	mu    sync.Mutex
	since time.Time // of the first refusal after which nothing was answered
	until time.Time // when to ask again
	why   error
}

// answered says that the engine answered a request.
func (r *refusal) answered() {
	if !r.some.Load() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since, r.why = time.Time{}, nil
	r.some.Store(false)
}

// refused says that the engine refused a request, and returns for how long it
// has refused everything. Before that, nobody may have asked it for a while.
func (r *refusal) refused(now time.Time, hint time.Duration, why error) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.some.Load() || now.Sub(r.until) > maxRefusal {
		r.since = now
		r.some.Store(true)
	}
	r.until, r.why = now.Add(min(max(hint, nextAsk), maxRefusal)), why
	return now.Sub(r.since)
}

// away is the fault of an engine that has refused everything for long, until it
// is time to ask again.
func (r *refusal) away(now time.Time) error {
	if !r.some.Load() {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == nil || now.Sub(r.since) < maxRefusal || !now.Before(r.until) {
		return nil
	}
	return fault.WithKind(fault.Unavailable, r.why, "the engine has refused everything for %s", now.Sub(r.since).Round(time.Second))
}
