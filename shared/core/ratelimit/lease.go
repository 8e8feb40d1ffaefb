package ratelimit

import (
	"hash/fnv"
	"time"
)

// Times of a Lease.
const (
	// A worker that wants more than its share looks after minLook, and after
	// lookPerHolder for each holder if that is longer.
	minLook       = time.Second
	lookPerHolder = 200 * time.Millisecond
	// A worker whose slice is due for renewal looks again after retryAfter if another one
	// wrote first. For a time of priority after each gap, only such workers write.
	retryAfter = MinGap / 4
	priority   = MinGap / 2
	// A worker that is not due lets others write first, for up to minYield and twice as
	// long each time, but no more than maxYield.
	minYield = time.Second
	maxYield = 4 * time.Second
	// A worker asks for wantFactor/2 times of what it uses, unless requests wait for
	// its share: then it asks for the whole limit.
	wantFactor = 3
	// minGain is the part of an equal share that a worker must gain for a write that is
	// not due: 1/minGain.
	minGain = 4
)

// Lease is a worker's side of a limit: its Budget, and when it takes a slice, renews
// it and gives it up.
//
//	no slice ──requests wait──▶ look ──▶ slice ──renewal is due, or requests wait and more is free──▶ slice
//	   ▲                                   └── renewal is due and nothing is used ──┐
//	   └────────────────────────────────────────────────────────────────────────────┘
//
// It is not safe for concurrent use.
type Lease struct {
	*Budget
	rules  Rules
	worker string
	grant  Grant // the last one; zero without a slice
	// By the caller's clock: when the slice is to be renewed, and the time before which
	// the worker does not look.
	renewAt, lookAt time.Time
	yields          int // times in a row that others wrote first
}

// Demand is what waits for a share.
type Demand struct {
	Waiting int    // requests
	Largest Amount // the largest part of their costs; of the last ones if none waits
}

// NewLease returns the lease of a worker without a slice.
func NewLease(r Rules, worker string, now time.Time) *Lease {
	return &Lease{Budget: NewBudget(now), rules: r, worker: worker, lookAt: now}
}

// NextLook returns when the worker is to read the document; false for not before
// something waits.
func (l *Lease) NextLook(d Demand) (at time.Time, ok bool) {
	held := l.grant.Worker != ""
	switch {
	case d.Waiting > 0 && !(held && l.rules.Limit.Within(l.grant.Share)):
		return l.lookAt, true
	case held:
		return latest(l.renewAt, l.lookAt), true
	}
	return time.Time{}, false
}

// Look returns the document that the worker is to write, and false if it leaves the
// document as it is. Call Saved once it is written. After a Conflict, look again at
// NextLook.
func (l *Lease) Look(d Doc, demand Demand, now time.Time) (Doc, bool) {
	_, registered := d.Grant(l.worker)
	due := registered && !now.Before(l.renewAt)
	next, ok := l.next(d, demand, now, due)
	if !ok {
		l.lookAt = now.Add(max(minLook, time.Duration(len(d.Grants))*lookPerHolder))
		if registered { // its renewal comes first
			l.lookAt = earliest(l.lookAt, latest(l.renewAt, now.Add(retryAfter)))
		}
		l.yields = 0
		return d, false
	}
	gap := MinGap
	if !due {
		gap += priority
	}
	if wait := d.waitFor(gap, now); wait > 0 {
		l.lookAt = now.Add(wait)
		if !due {
			l.lookAt = l.lookAt.Add(l.yield())
		}
		if registered {
			l.lookAt = earliest(l.lookAt, latest(l.renewAt, now.Add(wait)))
		}
		return d, false
	}
	l.yields = 0
	l.lookAt = now.Add(retryAfter)
	g, _ := next.Grant(l.worker)
	l.Allow(l.share.Min(g.Share), l.until)
	return next, true
}

// next returns the document with the worker's next slice, and whether that is worth a
// write.
func (l *Lease) next(d Doc, demand Demand, now time.Time, due bool) (Doc, bool) {
	usage := l.Usage(now)
	mine, registered := d.Grant(l.worker)
	if demand.Waiting == 0 && usage[0].IsZero() {
		return l.rules.Leave(d, l.worker, usage, now), due
	}
	next, g, ok := l.rules.Take(d, Ask{l.worker, l.want(usage, demand), l.least(demand), usage}, now)
	if !ok || !registered || due {
		return next, ok
	}
	if demand.Waiting == 0 || !mine.Share.Within(g.Share) {
		return d, false
	}
	gain := g.Share.Minus(mine.Share)
	for k, limit := range l.rules.Limit.vector() {
		if n := gain.vector()[k]; n > 0 && n*minGain*int64(len(next.Grants)) >= limit {
			return next, true
		}
	}
	return d, false
}

// Leave returns the document without the worker's slice, for a worker that ends.
// Nothing may begin any more.
func (l *Lease) Leave(d Doc, now time.Time) (Doc, bool) {
	if _, ok := d.Grant(l.worker); !ok {
		return d, false
	}
	l.Allow(Amount{}, l.until)
	return l.rules.Leave(d, l.worker, l.Usage(now), now), true
}

// Saved says that the document that Look returned was written. Asked is the time that
// Look was called with. Until then the worker may use the lesser of its old and its new
// share, whichever of them the document has.
func (l *Lease) Saved(d Doc, asked time.Time) {
	g, ok := d.Grant(l.worker)
	l.grant = g
	if !ok {
		return
	}
	l.renewAt = asked.Add(g.RenewAt().Sub(g.From))
	l.Allow(g.Share, asked.Add(g.Until.Sub(g.From)))
}

// Failed says that the document could not be read.
func (l *Lease) Failed(now time.Time) { l.lookAt = now.Add(minLook) }

// yield returns for how long the worker lets others write first: another time for
// each worker, and longer each time.
func (l *Lease) yield() time.Duration {
	h := fnv.New64a()
	_, _ = h.Write([]byte(l.worker)) // never fails
	_, _ = h.Write([]byte{byte(l.yields)})
	longest := min(minYield<<min(l.yields, 8), maxYield)
	l.yields++
	return time.Duration(h.Sum64() % uint64(longest))
}

// want returns what the worker could use in a minute.
func (l *Lease) want(u Usage, d Demand) Amount {
	if d.Waiting > 0 {
		return l.rules.Limit
	}
	all := Amount{}
	for _, part := range u {
		all = all.Plus(part)
	}
	rate := all.Max(Amount{u[0].Requests * usageParts, u[0].Tokens * usageParts})
	return Amount{rate.Requests*wantFactor/2 + 1, rate.Tokens*wantFactor/2 + 1}.Max(l.least(d))
}

// least returns the least share that lets a request begin.
func (l *Lease) least(d Demand) Amount { return d.Largest.Max(Amount{Requests: 1}) }

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
