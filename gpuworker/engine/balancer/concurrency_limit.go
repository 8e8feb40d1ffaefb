package balancer

import (
	"time"

	"rollout/gpuworker/engine"
)

// concurrencyLimit finds how many requests at once a server makes the most of, by trying:
//
//	try more ──worth it──▶ try still more
//	   │ not worth it: back
//	   ▼
//	try less ──nothing lost──▶ try still less
//	   │ lost: back
//	   ▼
//	hold for some windows, longer each time, then try again
//
// What a number is worth is its goodput: pieces of answers a second, which is
// requests in flight times the pieces that one gets a second (Little's law).
// That says the same of servers that stream and of those that do not, however
// long their answers are. More requests are worth it if goodput grows by at
// least a part of what they grow by; latency alone says nothing, as it grows
// with every request that a batch gets, long before the server is full.
//
// A server that tells its queue need not be tried: one that queues more than a
// quarter of what it works on has too many, one that queues none may get more.
// One that refuses more than a few (429, 503) has too many at once.
type concurrencyLimit struct {
	min, max int
	limit    int

	best    measure   // the best known
	bestAt  int       // its limit; 0 if nothing is known
	trying  int       // +1 more, -1 less, 0 holding
	first   float64   // the first step to more
	turned  bool      // less is tried since more was not worth it
	held    int       // windows left to hold
	hold    int       // windows of the next hold
	ceiling int       // the server refused more than that; 0 if it never did
	tells   bool      // the server tells its queue
	fresh   bool      // it has told it at this limit
	queues  bool      // it queues requests
	evicted float64   // its count of preempted requests; negative if not known
	calm    time.Time // when a refusal is of another crowd than the last
}

// measure is what a window showed.
type measure struct {
	inFlight float64 // mean
	goodput  float64 // pieces a second
}

const (
	worth     = 0.15 // of goodput for each part of requests
	spare     = 0.25 // less costs no more of it: fewer requests wait for less
	steep     = 0.6  // worth doubling for
	used      = 0.75 // of the limit, else a window says nothing about it
	firstHold = 8    // windows
	lastHold  = 64
	shift     = 0.3 // a change of goodput that makes what is known old
	queueOK   = 0.05
	queueMax  = 0.25 // of what the server works on
	cacheMax  = 0.95
)

func newConcurrencyLimit(least, most, start int) *concurrencyLimit {
	return &concurrencyLimit{min: least, max: max(least, most), limit: min(max(start, least), most), trying: +1, first: 2, hold: firstHold, evicted: -1}
}

// measured takes a window in.
func (c *concurrencyLimit) measured(m measure) {
	if m.inFlight < used*float64(c.limit) || m.goodput <= 0 || c.tells && !c.fresh {
		return
	}
	c.fresh = false
	switch {
	case c.bestAt == 0 && c.trying == 0:
		c.keep(m)
		c.settle()
	case c.bestAt == 0:
		c.keep(m)
		c.try(+1, c.first)
	case c.trying == 0:
		c.holding(m)
	case c.gains(m):
		factor := 1.25
		if c.trying > 0 && m.goodput/c.best.goodput-1 >= steep*(m.inFlight/c.best.inFlight-1) {
			factor = 2
		}
		c.keep(m)
		c.hold = firstHold
		c.try(c.trying, factor)
	default:
		c.reject()
	}
}

func (c *concurrencyLimit) keep(m measure) { c.best, c.bestAt = m, c.limit }

// gains reports whether what was tried is better than the best known: more that
// is worth it, or less that loses nothing.
func (c *concurrencyLimit) gains(m measure) bool {
	gain, more := m.goodput/c.best.goodput-1, m.inFlight/c.best.inFlight-1
	if c.trying > 0 {
		return more > 0 && gain >= worth*more && !c.queues
	}
	return more < 0 && gain >= spare*more
}

// try moves the limit; if it can't move, that is a rejection.
func (c *concurrencyLimit) try(way int, factor float64) {
	c.trying = way
	to := c.limit
	if way > 0 {
		to = max(to+1, int(float64(to)*factor))
	} else {
		to = min(to-1, int(float64(to)*0.8))
	}
	if c.ceiling > 0 {
		to = min(to, c.ceiling)
	}
	to = min(max(to, c.min), c.max)
	if to == c.limit || way > 0 && (to < c.limit || c.queues) {
		c.reject()
		return
	}
	c.limit = to
}

// reject goes back to the best known, tries the other way if that was not done
// yet, and holds.
func (c *concurrencyLimit) reject() {
	c.limit = c.bestAt
	if c.trying > 0 && !c.turned {
		c.turned = true
		c.try(-1, 1)
		return
	}
	c.settle()
}

// settle holds the limit for some windows.
func (c *concurrencyLimit) settle() {
	c.trying, c.turned, c.held = 0, false, c.hold
	c.hold = min(2*c.hold, lastHold)
}

// holding takes in what the best known is worth now.
func (c *concurrencyLimit) holding(m measure) {
	if d := m.goodput/c.best.goodput - 1; d > shift || d < -shift {
		c.held, c.hold = 0, firstHold
	}
	c.keep(m)
	if c.held--; c.held > 0 {
		return
	}
	if c.ceiling > 0 {
		c.ceiling += max(1, c.ceiling/8) // it may take more by now
	}
	c.try(+1, 1.25)
}

// refused takes in that the server has too much, with so many in flight.
func (c *concurrencyLimit) refused(now time.Time, inFlight int) {
	if now.Before(c.calm) {
		return
	}
	c.calm = now.Add(time.Second)
	c.ceiling = max(inFlight, c.min)
	c.lower(0.7*float64(min(c.limit, c.ceiling)), +1)
}

// lower sets a limit that is not known yet, and what is tried then.
func (c *concurrencyLimit) lower(to float64, then int) {
	c.limit = min(max(int(to), c.min), c.max)
	c.bestAt, c.trying, c.first, c.turned = 0, then, 1.25, false
}

// told takes in what the server tells of itself, with so many in flight.
func (c *concurrencyLimit) told(v engine.ServerMetrics, inFlight int) {
	thrashes := c.evicted >= 0 && v.Preempted > c.evicted || v.KVCacheUsage > cacheMax && v.Waiting > 0
	c.evicted = v.Preempted
	c.tells, c.fresh = v.Running >= 0 && v.Waiting >= 0, true
	c.queues = v.Running > 0 && v.Waiting > queueOK*v.Running+1
	switch {
	case inFlight > c.limit: // it is being lowered
	case v.Running > 0 && v.Waiting > queueMax*v.Running+1:
		c.lower(float64(c.limit)*max(0.5, 1.1*v.Running/(v.Running+v.Waiting)), 0)
	case thrashes:
		c.lower(0.9*float64(c.limit), 0)
	}
}
