package ratelimit

import (
	"math"
	"time"
)

// The window of a Budget. A use counts from the end of its bucket on.
const (
	bucket  = 100 * time.Millisecond
	buckets = int64(Minute/bucket) + 1
)

// tolerance is how far a worker that was late may be ahead of an even pace. It bounds
// the requests that begin at once.
const tolerance = time.Second

// Budget is what one worker may begin under its share: no more than the share over any
// Minute, at an even pace. It is not safe for concurrent use. Times must come from one
// clock; one that stands still or goes back lets nothing begin.
type Budget struct {
	epoch time.Time
	share Amount
	until time.Time

	used   [buckets]Amount // by number of the bucket modulo buckets
	newest int64           // bucket
	sum    Amount          // of used

	refused    [buckets]int64 // requests that the server refused, likewise
	refusedSum int64

	// pace is when, since epoch, the next use is due at an even pace, by resource.
	pace [resources]time.Duration
}

// NewBudget returns a budget that has used nothing, and allows nothing yet.
func NewBudget(now time.Time) *Budget { return &Budget{epoch: now} }

// Allow sets the share until a time.
func (b *Budget) Allow(share Amount, until time.Time) { b.share, b.until = share, until }

// Share returns what may be used in a minute now.
func (b *Budget) Share(now time.Time) Amount {
	if !now.Before(b.until) {
		return Amount{}
	}
	return b.share
}

// Next returns when a request of that cost may begin: now or later, or never under
// this share. A part of the cost that is 0 is not limited.
func (b *Budget) Next(cost Amount, now time.Time) (at time.Time, ok bool) {
	share := b.Share(now)
	if !cost.Within(share) {
		return time.Time{}, false
	}
	b.advance(now)
	at = now
	for k, c := range cost.vector() {
		if c > 0 && b.pace[k]-tolerance > at.Sub(b.epoch) {
			at = b.epoch.Add(b.pace[k] - tolerance)
		}
	}
	left := b.sum
	for n := b.newest - buckets + 1; !left.Plus(cost).limitedBy(cost).Within(share); n++ {
		left = left.Minus(b.used[mod(n)])
		if freed := b.epoch.Add(time.Duration(n+buckets) * bucket); freed.After(at) {
			at = freed
		}
	}
	return at, at.Before(b.until)
}

// limitedBy drops the parts that the cost does not have.
func (a Amount) limitedBy(cost Amount) Amount { return a.Of(cost) }

// Begin counts a request of that cost, which begins now, and returns its number for
// Settle.
func (b *Budget) Begin(cost Amount, now time.Time) (number int64) {
	b.advance(now)
	b.add(b.newest, cost)
	share, at := b.share.vector(), now.Sub(b.epoch)
	for k, c := range cost.vector() {
		if c > 0 && share[k] > 0 {
			b.pace[k] = max(b.pace[k], at) + took(c, share[k])
		}
	}
	return b.newest
}

// Settle corrects the cost of a request after it has ended, or takes it back if the
// request did not begin: then actual is zero.
func (b *Budget) Settle(number int64, cost, actual Amount, now time.Time) {
	b.advance(now)
	change := actual.Minus(cost)
	if number > b.newest-buckets {
		b.add(number, change)
	}
	share := b.share.vector()
	for k, c := range change.vector() {
		if c != 0 && share[k] > 0 {
			b.pace[k] += took(c, share[k])
		}
	}
}

// Refuse says that the server refused a request. It counts no more, but the pace stays:
// it is as if the request had been made later.
func (b *Budget) Refuse(number int64, cost Amount, now time.Time) {
	b.advance(now)
	if number > b.newest-buckets {
		b.add(number, Amount{}.Minus(cost))
		b.refused[mod(number)]++
		b.refusedSum++
	}
}

// Refused returns which share of the requests of the last Minute the server refused.
func (b *Budget) Refused(now time.Time) float64 {
	b.advance(now)
	return float64(b.refusedSum) / float64(max(1, b.refusedSum+b.sum.Requests))
}

// Answered returns what was begun within the last Minute and was not refused, and how
// long ago the first of it began.
func (b *Budget) Answered(now time.Time) (sum Amount, since time.Duration) {
	b.advance(now)
	for age := range buckets {
		if b.used[mod(b.newest-age)].Requests > 0 {
			since = time.Duration(age) * bucket
		}
	}
	return b.sum, since
}

// Usage returns what was begun within the last Minute.
func (b *Budget) Usage(now time.Time) (u Usage) {
	b.advance(now)
	for age := range buckets {
		part := min(usageParts-1, age*usageParts/buckets)
		u[part] = u[part].Plus(b.used[mod(b.newest-age)].Max(Amount{}))
	}
	return u
}

// add adds an amount to a bucket of the window.
func (b *Budget) add(n int64, a Amount) {
	b.used[mod(n)] = b.used[mod(n)].Plus(a)
	b.sum = b.sum.Plus(a)
}

// advance removes what is older than a Minute.
func (b *Budget) advance(now time.Time) {
	n := int64(now.Sub(b.epoch) / bucket)
	if n-b.newest >= buckets {
		b.used, b.sum, b.newest = [buckets]Amount{}, Amount{}, n
		b.refused, b.refusedSum = [buckets]int64{}, 0
	}
	for b.newest < n {
		b.newest++
		b.add(b.newest, Amount{}.Minus(b.used[mod(b.newest)]))
		b.refusedSum -= b.refused[mod(b.newest)]
		b.refused[mod(b.newest)] = 0
	}
}

func mod(n int64) int64 { return (n%buckets + buckets) % buckets }

// took returns how long n of a share of so many a Minute take.
func took(n, share int64) time.Duration {
	return time.Duration(math.Round(float64(n) / float64(share) * float64(Minute)))
}
