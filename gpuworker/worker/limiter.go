package worker

import (
	"context"
	"sync"
	"time"

	"rollout/shared/core/health"
	"rollout/shared/core/ratelimit"
	"rollout/shared/core/share"
)

// limiter lets requests begin under the pool's limit, in the order in which they ask, or
// by the weights of their runs if several have requests that wait. The worker's share of
// the limit comes from a document: see limitLoop. What answers say of the server's limits
// goes there too. It is safe for concurrent use. A nil limiter lets everything begin.
//
//	acquire ──▶ queue ──▶ begins   when the one whose turn it is may, by the share and at an even pace
//	                        └──▶ its answer: what it took, and what the server says of its limits
type limiter struct {
	now    func() time.Time
	demand chan struct{} // gets a value when requests begin to wait

	mu       sync.Mutex
	lease    *ratelimit.Lease
	queue    []*limitWaiter // in the order of their arrival
	turns    share.Turns
	timer    *time.Timer // admits the next one
	largest  ratelimit.Amount
	estimate tokenEstimate
	online   onlineCredit
	since    time.Time // when requests began to wait; zero while none does
	waited   int       // the longest queue since the last heartbeat
}

// limitWaiter is a request that waits to begin.
type limitWaiter struct {
	claimant
	cost   ratelimit.Amount
	begins chan begun // gets a value when the request may begin
}

// begun is a request that has begun.
type begun struct {
	number int64 // in the budget
	at     time.Time
}

// newLimiter returns the limiter of a worker, or nil if there is no limit and the worker
// learns none.
func newLimiter(cfg Config, now func() time.Time) *limiter {
	if cfg.Limit.IsZero() && !cfg.LearnLimits {
		return nil
	}
	rules := ratelimit.Rules{Limit: cfg.Limit, Skew: cfg.Timings.SkewBudget}
	return &limiter{now: now, demand: make(chan struct{}, 1),
		lease: ratelimit.NewLease(rules, cfg.ID, cfg.LearnLimits, now()), estimate: newTokenEstimate(),
		online: newOnlineCredit(cfg.Online.Share)}
}

// limitPermit is the permission to begin one request under the pool's limit. The zero
// value belongs to a pool without a limit.
type limitPermit struct {
	limiter *limiter
	of      claimant
	asked   Cost
	cost    ratelimit.Amount
	begun
}

// Settle says which tokens the request took, after its answer. Call it once, or not at
// all: then the request counts as it was estimated.
func (p limitPermit) Settle(prompt, completion int64) {
	l := p.limiter
	if l == nil || prompt+completion == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.estimate.learn(p.asked, prompt, completion)
	took := l.lease.Within(ratelimit.Amount{Requests: p.cost.Requests, Tokens: prompt + completion})
	l.lease.Settle(p.number, p.cost, took, l.now())
	l.admit()
}

// Report takes in what the answer says of the server's limits.
func (p limitPermit) Report(r ratelimit.Report) {
	l := p.limiter
	if l == nil || r == (ratelimit.Report{}) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease.Report(r, p.number, p.cost, p.at, l.now())
	l.admit()
	if l.lease.HasNews() {
		l.announceDemand()
	}
}

// Cancel takes the permit back: its request does not begin.
func (p limitPermit) Cancel() {
	l := p.limiter
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease.Settle(p.number, p.cost, ratelimit.Amount{}, l.now())
	if !p.of.online {
		l.turns.Cancel(p.of.run, p.of.weight)
	}
	l.admit()
}

// acquire waits until a request of that cost may begin. It returns false if stopping was
// closed or ctx ended first.
func (l *limiter) acquire(ctx context.Context, stopping <-chan struct{}, of claimant, c Cost) (limitPermit, bool) {
	if l == nil {
		return limitPermit{}, true
	}
	if p, ok := l.tryAcquire(of, c); ok {
		return p, true
	}
	w := l.enqueue(of, c)
	select {
	case b := <-w.begins:
		return limitPermit{l, of, c, w.cost, b}, true
	case <-stopping:
	case <-ctx.Done():
	}
	l.mu.Lock()
	waiting := l.dequeue(w)
	l.mu.Unlock()
	if !waiting { // it may begin since the same moment
		limitPermit{l, of, c, w.cost, <-w.begins}.Cancel()
	}
	return limitPermit{}, false
}

// enqueue adds a request of that cost to the queue.
func (l *limiter) enqueue(of claimant, c Cost) *limitWaiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &limitWaiter{claimant: of, cost: l.costOf(c), begins: make(chan begun, 1)}
	if len(l.queue) == 0 {
		l.since = l.now()
	}
	l.queue = append(l.queue, w)
	l.waited = max(l.waited, len(l.queue))
	l.admit()
	l.announceDemand()
	return w
}

// tryAcquire returns a permit if the request may begin at once.
func (l *limiter) tryAcquire(of claimant, c Cost) (limitPermit, bool) {
	if l == nil {
		return limitPermit{}, true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	cost, now := l.costOf(c), l.now()
	if at, ok := l.lease.Next(cost, now); len(l.queue) > 0 || !ok || at.After(now) {
		return limitPermit{}, false
	}
	if !of.online {
		l.turns.Begin(of.run, of.weight)
	}
	return limitPermit{l, of, c, cost, begun{l.lease.Begin(cost, now), now}}, true
}

// next returns the index of the request whose turn it is: an online one within the share
// of that class, else the run's with the least start. The queue is not empty.
func (l *limiter) next() int {
	online, best, least := -1, -1, 0.0
	for i, w := range l.queue {
		if w.online {
			if online < 0 {
				online = i
			}
			continue
		}
		if start := l.turns.Start(w.run, w.weight); best < 0 || start < least {
			best, least = i, start
		}
	}
	if online >= 0 && (best < 0 || l.online.has()) {
		return online
	}
	return best
}

// began counts a request that begins after it has waited, while others may still wait.
func (l *limiter) began(of claimant) {
	if of.online {
		if len(l.queue) > 0 {
			l.online.spend()
		}
		return
	}
	l.turns.Begin(of.run, of.weight)
	l.online.earn()
}

// admit lets requests begin, each in its turn, and sets the timer for the next. The caller
// holds l.mu.
func (l *limiter) admit() {
	if l.timer != nil {
		l.timer.Stop()
	}
	now := l.now()
	for len(l.queue) > 0 {
		i := l.next()
		w := l.queue[i]
		w.cost = l.lease.Within(w.cost) // as the limit is now
		at, ok := l.lease.Next(w.cost, now)
		if !ok {
			break // a new share admits it
		}
		if at.After(now) {
			l.admitAfter(at.Sub(now))
			break
		}
		l.queue = append(l.queue[:i], l.queue[i+1:]...)
		l.began(w.claimant)
		w.begins <- begun{l.lease.Begin(w.cost, now), now}
	}
	if len(l.queue) == 0 {
		l.since = time.Time{}
	}
}

func (l *limiter) admitAfter(d time.Duration) {
	if l.timer == nil {
		l.timer = time.AfterFunc(d, func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.admit()
		})
		return
	}
	l.timer.Reset(d)
}

// dequeue removes the waiter and reports whether it was still in the queue.
func (l *limiter) dequeue(w *limitWaiter) bool {
	for i, q := range l.queue {
		if q == w {
			l.queue = append(l.queue[:i], l.queue[i+1:]...)
			l.admit()
			return true
		}
	}
	return false
}

// costOf returns what the request counts as until it is settled.
func (l *limiter) costOf(c Cost) ratelimit.Amount {
	cost := l.lease.Within(ratelimit.Amount{Requests: 1, Tokens: l.estimate.tokens(c)})
	if len(l.queue) == 0 {
		l.largest = cost
	} else {
		l.largest = l.largest.Max(cost)
	}
	return cost
}

// isLimited reports whether any limit holds now.
func (l *limiter) isLimited() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lease.IsLimited()
}

// announceDemand wakes the loop that takes shares.
func (l *limiter) announceDemand() {
	select {
	case l.demand <- struct{}{}:
	default:
	}
}

// waiting returns what waits for a share. The caller holds l.mu.
func (l *limiter) waiting() ratelimit.Demand {
	return ratelimit.Demand{Waiting: len(l.queue), Largest: l.largest}
}

// soonAfter bounds the shards that a limited worker claims ahead: what may begin within
// this time.
const soonAfter = 10 * time.Second

// soon returns how many requests may begin soon, at least one, but no more than most.
func (l *limiter) soon(most int) int {
	if l == nil {
		return most
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, limit := l.now(), l.lease.Limit()
	share := l.lease.Share(now)
	part := func(n int64) int { return int(min(int64(most), 1+n*int64(soonAfter)/int64(time.Minute))) }
	if limit.Requests > 0 {
		most = part(share.Requests)
	}
	if limit.Tokens > 0 {
		most = part(share.Tokens / max(1, l.largest.Tokens))
	}
	if l.lease.WaitUntil().Sub(now) > soonAfter {
		most = 1
	}
	return max(1, most)
}

// report returns the limit for a heartbeat; nil without a limit.
func (l *limiter) report() *health.Limit {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, limit := l.now(), l.lease.Limit()
	wait := l.lease.WaitUntil()
	if limit.IsZero() && !wait.After(now) {
		return nil
	}
	share := l.lease.Share(now)
	out := &health.Limit{Requests: limit.Requests, Tokens: limit.Tokens,
		RequestsFrom: string(limit.RequestsFrom), TokensFrom: string(limit.TokensFrom),
		ShareRequests: share.Requests, ShareTokens: share.Tokens, Waiting: max(l.waited, len(l.queue))}
	for _, part := range l.lease.Usage(now) {
		out.UsedRequests += part.Requests
		out.UsedTokens += part.Tokens
	}
	if wait.After(now) {
		out.WaitUntil = wait.UTC()
	}
	if len(l.queue) > 0 {
		out.WaitingSince = l.since.UTC()
	}
	l.waited = 0
	return out
}
