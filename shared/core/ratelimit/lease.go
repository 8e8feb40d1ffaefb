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
// it and gives it up. While no limit is known, it lets everything begin.
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

	// What is known of the server's limits, and of that what the document does not say
	// yet, and what a write under way says.
	learnt       Learnt
	news, saying news
	unread       bool // the document was not read yet
	learns       bool
	limit        Amount // that holds
}

// Demand is what waits for a share.
type Demand struct {
	Waiting int    // requests
	Largest Amount // the largest part of their costs; of the last ones if none waits
}

// NewLease returns the lease of a worker without a slice. Learns says whether the worker
// learns limits from its server. Then it looks at the document once at its start.
func NewLease(r Rules, worker string, learns bool, now time.Time) *Lease {
	return &Lease{Budget: NewBudget(now), rules: r, worker: worker, lookAt: now, learns: learns, unread: learns,
		limit: r.Limit}
}

// Limit returns the limit that holds, as far as this worker knows.
func (l *Lease) Limit() Effective { return l.rules.Effective(l.learnt) }

// IsLimited reports whether any limit holds.
func (l *Lease) IsLimited() bool { return !l.limit.IsZero() }

// WaitUntil returns until when the server wants no requests; the past if it takes some.
func (l *Lease) WaitUntil() time.Time { return l.learnt.WaitUntil }

// Next returns when a request of that cost may begin: now or later, or not before
// the worker has another share.
func (l *Lease) Next(cost Amount, now time.Time) (at time.Time, ok bool) {
	at = now
	if l.IsLimited() {
		if at, ok = l.Budget.Next(cost.Of(l.limit), now); !ok {
			return at, false
		}
	}
	if wait := earliest(l.learnt.WaitUntil, now.Add(MaxWait)); wait.After(at) {
		at = wait
	}
	return at, !l.IsLimited() || at.Before(l.until)
}

// Within returns what a request of that cost counts as: one that needs more than the limit
// counts as the whole limit. Next, Begin and Settle take costs within it.
func (l *Lease) Within(cost Amount) Amount {
	v, limit := cost.vector(), l.limit.vector()
	for k := range v {
		if limit[k] > 0 {
			v[k] = min(v[k], limit[k])
		}
	}
	return amount(v)
}

// Report takes in what an answer says about the server's limits. Number is that of Begin,
// and began when the request began.
func (l *Lease) Report(r Report, number int64, cost Amount, began, now time.Time) {
	if !l.learns {
		return
	}
	if r = r.bounded(); !r.Limit.IsZero() {
		l.news.stated, l.news.statedAt = r.Limit, now
	}
	if r.Refused {
		l.Refuse(number, cost, now)
		if r.AtOnce { // fewer at once are allowed, not fewer a minute
			r.Wait = 0
		}
	}
	if r.Wait > 0 {
		l.news.waitUntil = latest(l.news.waitUntil, now.Add(r.Wait))
	}
	if r.Refused && !r.AtOnce && l.news.refusal.at.IsZero() && l.tellsOfMinute(r, began, now) {
		l.news.refusal = refusal{at: now, began: began, tokens: r.OfTokens}
	}
	if l.news != (news{}) {
		l.know(Doc{Learnt: l.learnt}, now)
	}
}

// When a refusal tells of the limit of a minute. Others may be due to a burst, to others
// who use the same limit, to a quota of a day, or to chance.
const (
	// The worker has asked for longEnough, and the server refuses refusedShare of that.
	longEnough   = 45 * time.Second
	refusedShare = 0.03
	// Or it wants a wait of longWait at least, until what the worker asked first is a
	// minute ago: nobody else uses the limit.
	longWait    = 10 * time.Second
	waitMargin  = 6 * time.Second
	sharpMinute = Minute - time.Second
)

// tellsOfMinute reports whether a refusal tells of the limit of a minute, which the
// worker does not know yet.
func (l *Lease) tellsOfMinute(r Report, began, now time.Time) bool {
	answered, since := l.Answered(now)
	switch {
	case l.learnt.counts(l.worker, began), answered.Requests <= 0, now.Before(l.learnt.ChanceUntil):
		return false
	case since >= longEnough:
		return l.learnt.Raises > 0 || l.Refused(now) >= refusedShare
	}
	left := (sharpMinute - since - r.Wait).Abs()
	return l.learnt.Found.IsZero() && r.Wait >= longWait && left <= waitMargin
}

// know takes in what a document says, with the worker's news, and returns the document
// with them.
func (l *Lease) know(d Doc, now time.Time) Doc {
	d.Learnt = d.Learnt.asOf(now, l.rules.Skew)
	answered := Amount{}
	if !l.news.refusal.at.IsZero() {
		answered, _ = l.Answered(now)
	}
	d = d.learn(l.news, l.worker, answered, now)
	l.learnt = d.Learnt
	before := l.limit
	l.limit = l.rules.under(l.learnt).Limit
	if l.limit != before { // what is above the new limit waits for the next share
		l.share = l.share.Of(l.limit).Min(l.limit)
	}
	return d
}

// NextLook returns when the worker is to read the document; false for not before
// something waits or is learnt.
func (l *Lease) NextLook(d Demand) (at time.Time, ok bool) {
	held := l.grant.Worker != ""
	switch {
	case l.unread, l.HasNews():
		return l.lookAt, true
	case d.Waiting > 0 && l.IsLimited() && !(held && l.limit.Within(l.grant.Share)):
		return l.lookAt, true
	case held:
		return latest(l.renewAt, l.lookAt), true
	}
	return time.Time{}, false
}

// HasNews reports whether others should know what the worker has learnt. A limit that is
// stated again is no news.
func (l *Lease) HasNews() bool {
	n := l.news
	n.stated, n.statedAt = Amount{}, time.Time{}
	return n != (news{}) || l.news.statedAt.After(l.saying.statedAt) && l.news.stated != l.saying.stated
}

// settleTime is how long after a refusal it is told: the outcome of the requests that
// began with it is known then.
const settleTime = time.Second

// Look returns the document that the worker is to write, and false if it leaves the
// document as it is. Call Saved once it is written. After a Conflict, look again at
// NextLook.
func (l *Lease) Look(d Doc, demand Demand, now time.Time) (Doc, bool) {
	l.unread = false
	if at := l.news.refusal.at.Add(settleTime); at.After(now) && at.Sub(now) <= settleTime {
		l.lookAt = at
		return d, false
	}
	_, registered := d.Grant(l.worker)
	due := registered && !now.Before(l.renewAt)
	e := l.Limit()
	l.news.raise = due && demand.Waiting > 0 && (e.RequestsFrom == FromRefusals || e.TokensFrom == FromRefusals)
	known := d.Learnt.asOf(now, l.rules.Skew)
	d = l.know(d, now)
	told := d.Learnt.saysMoreThan(known)
	next, ok := l.next(d, demand, now, due || told)
	if !ok && told { // there is no room for its slice
		next, ok = d, true
		next.Schema, next.At = Schema, now.UTC()
	}
	if !ok {
		l.news, l.saying = news{}, l.news
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
	l.saying = l.news
	g, _ := next.Grant(l.worker)
	l.Allow(l.share.Min(g.Share), l.until)
	return next, true
}

// next returns the document with the worker's next slice, and whether that is worth a
// write. It is if the slice is due, or the document is written anyway.
func (l *Lease) next(d Doc, demand Demand, now time.Time, due bool) (Doc, bool) {
	usage, rules := l.Usage(now), l.rules
	rules.Limit = l.limit
	mine, registered := d.Grant(l.worker)
	if demand.Waiting == 0 && usage[0].IsZero() || !l.IsLimited() {
		return rules.Leave(d, l.worker, usage, now), due
	}
	next, g, ok := rules.Take(d, Ask{l.worker, l.want(usage, demand), l.least(demand), usage}, now)
	if !ok || !registered || due {
		return next, ok
	}
	if demand.Waiting == 0 || !mine.Share.Within(g.Share) {
		return d, false
	}
	gain := g.Share.Minus(mine.Share)
	for k, limit := range rules.Limit.vector() {
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
	rules := l.rules
	rules.Limit = l.limit
	return rules.Leave(d, l.worker, l.Usage(now), now), true
}

// Saved says that the document that Look returned was written. Asked is the time that
// Look was called with. Until then the worker may use the lesser of its old and its new
// share, whichever of them the document has.
func (l *Lease) Saved(d Doc, asked time.Time) {
	if l.news == l.saying {
		l.news = news{}
	}
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
		return l.limit
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
