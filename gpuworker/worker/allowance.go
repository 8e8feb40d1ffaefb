package worker

import (
	"context"
	"math"
	"sync"
	"time"

	"rollout/events"
	"rollout/shared/core/cost"
)

// allowance lets the requests of a shard begin as long as their run's budgets pay for them.
// It counts what each may take until its answer says what it took. It is safe for concurrent
// use. A nil allowance, of a run without a budget, lets everything begin.
//
//	acquire ──▶ begins     if it fits into what is left, or nothing of the shard is in flight
//	        ├─▶ waits      until a request in flight ends and leaves room
//	        └─▶ used up    nothing is left of one budget: the shard is handed back
//
// So all that a shard spends beyond its allowance is a part of its last requests. Of money,
// it is also the machine's boot and idle time: the shard whose request ends them has them.
type allowance struct {
	limit    cost.Spend // of all attempts of the shard
	money    *money
	estimate *costEstimate
	onWait   func() // is called when a request waits
	onUsedUp func() // is called when nothing is left

	mu       sync.Mutex
	spent    int64      // tokens of requests that have ended, in all attempts
	reserved cost.Spend // what those in flight may take
	inFlight int
	ended    chan struct{} // closed when a request ends
}

// acquire waits until a request of that cost may begin, and returns what it
// reserves. It returns false if the allowance is used up, stopping is closed or ctx
// ends first.
func (a *allowance) acquire(ctx context.Context, stopping <-chan struct{}, c Cost) (reserved cost.Spend, ok bool) {
	if a == nil {
		return cost.Spend{}, true
	}
	for {
		reserved, ended, ok := a.tryAcquire(c)
		switch {
		case ok:
			return reserved, true
		case ended == nil:
			a.onUsedUp()
			return cost.Spend{}, false
		}
		a.onWait()
		select {
		case <-ended:
		case <-stopping:
			return cost.Spend{}, false
		case <-ctx.Done():
			return cost.Spend{}, false
		}
	}
}

// tryAcquire reserves what a request may take that may begin at once. Otherwise ended is
// closed when another try is worth it; nil if the allowance is used up.
func (a *allowance) tryAcquire(c Cost) (reserved cost.Spend, ended <-chan struct{}, ok bool) {
	if a == nil {
		return cost.Spend{}, nil, true
	}
	most := cost.Spend{Tokens: a.estimate.tokens(c)}
	if a.limit.MicroUSD > 0 {
		most.MicroUSD = cost.Micros(a.estimate.nanoUSD(c, a.money.prices) + a.money.perRequest())
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	spent := cost.Spend{Tokens: a.spent}
	if a.limit.MicroUSD > 0 {
		spent.MicroUSD = cost.Micros(a.money.spent())
	}
	switch {
	case spent.Reaches(a.limit):
		return cost.Spend{}, nil, false
	case a.inFlight == 0, a.limit.Holds(spent.Plus(a.reserved).Plus(most)):
		a.reserved = a.reserved.Plus(most)
		a.inFlight++
		return most, nil, true
	}
	return cost.Spend{}, a.ended, false
}

// end gives back what a request has reserved, and counts the tokens that it took.
func (a *allowance) end(reserved cost.Spend, took int64) {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.reserved = a.reserved.Minus(reserved)
	a.spent += took
	a.inFlight--
	close(a.ended)
	a.ended = make(chan struct{})
}

// soFar returns how many tokens the shard has spent in all its attempts; 0 without an
// allowance.
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

// nanoUSD returns what the tokens of the request may cost, in billionths of a dollar.
func (e *costEstimate) nanoUSD(c Cost, p cost.TokenPrices) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	prompt, answer := e.parts(c)
	return p.NanoUSD(int64(math.Ceil(prompt)), int64(math.Ceil(answer)))
}

func (e *costEstimate) learn(c Cost, prompt, completion int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tokenEstimate.learn(c, prompt, completion)
}

// unhurried is for requests in flight that have no time limit of their own.
const unhurried = 365 * 24 * time.Hour

// allowanceOf returns the allowance of a message; zero in a run without a budget.
func allowanceOf(m events.Work) cost.Spend {
	return cost.Spend{Tokens: m.Allowance, MicroUSD: m.AllowanceMicroUSD}
}

// allow limits the shard to an allowance, unless it is zero. The requests of a shard
// that has used it up may end before it is handed back.
func (w *Worker) allow(h *heldShard, s *Shard, limit cost.Spend) {
	if limit.IsZero() {
		return
	}
	h.allowance = limit
	s.allowance = &allowance{limit: limit, money: &s.money, spent: h.doc.Counts.Tokens(), estimate: &w.costs,
		ended: make(chan struct{}), onWait: s.letOthersBegin,
		onUsedUp: func() { h.stop(stopUsedUp, func() time.Duration { return unhurried }) }}
}

// knowsPrices reports whether anything that the worker uses has a price, so that a budget in
// dollars can end.
func (w *Worker) knowsPrices() bool {
	return w.cfg.TokenPrices.Known() || w.machine != nil && w.machine.price > 0
}
