package balancer

import (
	"time"

	"rollout/gpuworker/engine"
)

// concurrencyLimit finds how many requests at once give a server the highest
// goodput, by trying:
//
//	try more ──worth it──▶ try still more
//	   │ not worth it: back
//	   ▼
//	try less ──no loss──▶ try still less
//	   │ loss: back
//	   ▼
//	hold for some windows, longer each time, then try again
//
// Goodput is pieces of answers a second, measured as requests in flight times
// the pieces that one request gets a second (Little's law). It means the same
// for servers that stream and for those that do not, and for any length of
// answers. More requests are worth it if goodput grows by at least a share of
// what they grow by. Latency alone says nothing: it grows with every request
// that joins a batch, long before the server is full.
//
// A server may also report its queue. If it queues more than a quarter
// of what it works on, the limit is too high; if it queues nothing, it may get
// more. A server that refuses more than a few requests (429, 503) has too many.
type concurrencyLimit struct {
	min, max int
	limit    int

	best         measure   // the best one known
	bestAt       int       // its limit; 0 if none is known
	trying       int       // +1 more, -1 less, 0 holding
	firstFactor  float64   // of the first step to more
	triedLess    bool      // since more was not worth it
	holdLeft     int       // windows left to hold
	hold         int       // windows of the next hold
	ceiling      int       // the server refused more than that; 0 if it never did
	reportsQueue bool      // the server reports its queue
	fresh        bool      // it has reported the queue at this limit
	queues       bool      // it queues requests
	preempted    float64   // its counter; negative if not known
	ignoreUntil  time.Time // later refusals belong to another burst than the last
}

// measure is what a window showed.
type measure struct {
	inFlight float64 // mean
	goodput  float64 // pieces a second
}

const (
	worth       = 0.15 // least share by which goodput must grow with more requests
	spare       = 0.25 // largest share by which goodput may shrink with fewer requests
	steep       = 0.6  // share of growth from which the next step doubles
	used        = 0.75 // least share of the limit in flight; else a window says nothing
	firstHold   = 8    // windows
	lastHold    = 64
	shift       = 0.3 // change of goodput that outdates what is known
	minQueue    = 0.05
	maxQueue    = 0.25 // queue length by running requests
	maxKVCache  = 0.95
	largeFactor = 2
	smallFactor = 1.25
)

func newConcurrencyLimit(least, most, start int) *concurrencyLimit {
	return &concurrencyLimit{min: least, max: max(least, most), limit: min(max(start, least), most),
		trying: +1, firstFactor: largeFactor, hold: firstHold, preempted: -1}
}

// addMeasure adjusts the limit to what a window at this limit showed.
func (c *concurrencyLimit) addMeasure(m measure) {
	if m.inFlight < used*float64(c.limit) || m.goodput <= 0 || c.reportsQueue && !c.fresh {
		return
	}
	c.fresh = false
	switch {
	case c.bestAt == 0 && c.trying == 0:
		c.setBest(m)
		c.settle()
	case c.bestAt == 0:
		c.setBest(m)
		c.try(+1, c.firstFactor)
	case c.trying == 0:
		c.holding(m)
	case c.gains(m):
		factor := smallFactor
		if c.trying > 0 && m.goodput/c.best.goodput-1 >= steep*(m.inFlight/c.best.inFlight-1) {
			factor = largeFactor
		}
		c.setBest(m)
		c.hold = firstHold
		c.try(c.trying, factor)
	default:
		c.reject()
	}
}

func (c *concurrencyLimit) setBest(m measure) { c.best, c.bestAt = m, c.limit }

// gains reports whether the limit tried is better than the best known: more that
// is worth it, or less without loss.
func (c *concurrencyLimit) gains(m measure) bool {
	gain, more := m.goodput/c.best.goodput-1, m.inFlight/c.best.inFlight-1
	if c.trying > 0 {
		return more > 0 && gain >= worth*more && !c.queues
	}
	return more < 0 && gain >= spare*more
}

// try moves the limit up (+1) by the factor or down (-1). If it can't move, it
// rejects the try.
func (c *concurrencyLimit) try(direction int, factor float64) {
	c.trying = direction
	to := c.limit
	if direction > 0 {
		to = max(to+1, int(float64(to)*factor))
	} else {
		to = min(to-1, int(float64(to)*0.8))
	}
	if c.ceiling > 0 {
		to = min(to, c.ceiling)
	}
	to = min(max(to, c.min), c.max)
	if to == c.limit || direction > 0 && (to < c.limit || c.queues) {
		c.reject()
		return
	}
	c.limit = to
}

// reject goes back to the best limit known. It tries less if it has tried only
// more so far, and holds otherwise.
func (c *concurrencyLimit) reject() {
	c.limit = c.bestAt
	if c.trying > 0 && !c.triedLess {
		c.triedLess = true
		c.try(-1, 1)
		return
	}
	c.settle()
}

// settle holds the limit for some windows.
func (c *concurrencyLimit) settle() {
	c.trying, c.triedLess, c.holdLeft = 0, false, c.hold
	c.hold = min(2*c.hold, lastHold)
}

// holding updates the best measure while the limit is held. It ends the hold
// when its windows are over or the goodput has shifted.
func (c *concurrencyLimit) holding(m measure) {
	if d := m.goodput/c.best.goodput - 1; d > shift || d < -shift {
		c.holdLeft, c.hold = 0, firstHold
	}
	c.setBest(m)
	if c.holdLeft--; c.holdLeft > 0 {
		return
	}
	if c.ceiling > 0 {
		c.ceiling += max(1, c.ceiling/8) // the server may take more by now
	}
	c.try(+1, smallFactor)
}

// addRefusals lowers the limit because the server refused too many requests,
// with so many in flight.
func (c *concurrencyLimit) addRefusals(now time.Time, inFlight int) {
	if now.Before(c.ignoreUntil) {
		return
	}
	c.ignoreUntil = now.Add(time.Second)
	c.ceiling = max(inFlight, c.min)
	c.lower(0.7*float64(min(c.limit, c.ceiling)), +1)
}

// lower sets a limit of which nothing is known, and what is tried after it.
func (c *concurrencyLimit) lower(to float64, then int) {
	c.limit = min(max(int(to), c.min), c.max)
	c.bestAt, c.trying, c.firstFactor, c.triedLess = 0, then, smallFactor, false
}

// addMetrics adjusts the limit to what the server reports, with so many requests
// in flight.
func (c *concurrencyLimit) addMetrics(v engine.ServerMetrics, inFlight int) {
	thrashes := c.preempted >= 0 && v.Preempted > c.preempted || v.KVCacheUsage > maxKVCache && v.Waiting > 0
	c.preempted = v.Preempted
	c.reportsQueue, c.fresh = v.Running >= 0 && v.Waiting >= 0, true
	c.queues = v.Running > 0 && v.Waiting > minQueue*v.Running+1
	switch {
	case inFlight > c.limit: // a lower limit has not taken effect yet
	case v.Running > 0 && v.Waiting > maxQueue*v.Running+1:
		c.lower(float64(c.limit)*max(0.5, 1.1*v.Running/(v.Running+v.Waiting)), 0)
	case thrashes:
		c.lower(0.9*float64(c.limit), 0)
	}
}
