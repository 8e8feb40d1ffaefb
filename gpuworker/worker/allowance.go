package worker

import (
	"context"
	"sync"
	"time"
)

// allowance lets the requests of a shard begin as long as their run's token budget
// pays for them. It counts what each may take until its answer says what it took. It
// is safe for concurrent use. A nil allowance, of a run without a token budget, lets
// everything begin.
//
//	acquire ──▶ begins     if it fits into what is left, or nothing of the shard is in flight
//	        ├─▶ waits      until a request in flight ends and leaves room
//	        └─▶ used up    nothing is left: the shard is handed back
//
// So all that a shard spends beyond its allowance is a part of its last request.
type allowance struct {
	limit    int64 // of all attempts of the shard
	estimate *costEstimate
	onWait   func() // is called when a request waits
	onUsedUp func() // is called when nothing is left

	mu       sync.Mutex
	spent    int64 // by requests that have ended, in all attempts
	reserved int64 // what those in flight may take
	inFlight int
	ended    chan struct{} // closed when a request ends
}

// acquire waits until a request of that cost may begin, and returns the tokens that it
// reserves. It returns false if the allowance is used up, stopping is closed or ctx
// ends first.
func (a *allowance) acquire(ctx context.Context, stopping <-chan struct{}, c Cost) (reserved int64, ok bool) {
	if a == nil {
		return 0, true
	}
	for {
		reserved, ended, ok := a.tryAcquire(c)
		switch {
		case ok:
			return reserved, true
		case ended == nil:
			a.onUsedUp()
			return 0, false
		}
		a.onWait()
		select {
		case <-ended:
		case <-stopping:
			return 0, false
		case <-ctx.Done():
			return 0, false
		}
	}
}

// tryAcquire reserves tokens for a request that may begin at once. Otherwise ended is
// closed when another try is worth it; nil if the allowance is used up.
func (a *allowance) tryAcquire(c Cost) (reserved int64, ended <-chan struct{}, ok bool) {
	if a == nil {
		return 0, nil, true
	}
	cost := a.estimate.tokens(c)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch left := a.limit - a.spent; {
	case left <= 0:
		return 0, nil, false
	case a.inFlight == 0, cost <= left-a.reserved:
		a.reserved += cost
		a.inFlight++
		return cost, nil, true
	}
	return 0, a.ended, false
}

// end gives back what a request has reserved, and counts what it took.
func (a *allowance) end(reserved, took int64) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reserved -= reserved
	a.spent += took
	a.inFlight--
	close(a.ended)
	a.ended = make(chan struct{})
}

// soFar returns what the shard has spent in all its attempts; 0 without an allowance.
func (a *allowance) soFar() int64 {
	if a == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.spent
}

// costEstimate is the tokenEstimate of all shards of a worker. It is safe for
// concurrent use.
type costEstimate struct {
	mu sync.Mutex
	tokenEstimate
}

func (e *costEstimate) tokens(c Cost) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tokenEstimate.tokens(c)
}

func (e *costEstimate) learn(c Cost, prompt, completion int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tokenEstimate.learn(c, prompt, completion)
}

// unhurried is for requests in flight that have no time limit of their own.
const unhurried = 365 * 24 * time.Hour

// allow limits the shard to an allowance, if limit is not 0. The requests of a shard
// that has used it up may end before it is handed back.
func (w *Worker) allow(h *heldShard, s *Shard, limit int64) {
	if limit == 0 {
		return
	}
	h.allowance = limit
	s.allowance = &allowance{limit: limit, spent: h.doc.Counts.Tokens(), estimate: &w.costs, ended: make(chan struct{}),
		onWait:   s.letOthersBegin,
		onUsedUp: func() { h.stop(stopUsedUp, func() time.Duration { return unhurried }) }}
}
