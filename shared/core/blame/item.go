package blame

import (
	"slices"
	"time"
)

// Evidence is what the tries of one item have shown. The zero value is an item that
// has not failed.
type Evidence struct {
	failed  int     // tries
	tries   int     // those that prove something
	product float64 // of the shares, over these tries
	server  string  // of the open try
	began   time.Time
	outcome Outcome
	nature  Nature
	open    bool

	// The servers on which the item failed for a setting, since its run was last resumed
	// after a refusal.
	on    []string
	epoch int // of the run's contact
}

// Add adds a failed try of the item, which Weigh judges later.
func (l *Ledger) Add(item Item, e *Evidence, server string, r Request, f Failure) {
	l.close(item, e)
	e.failed++
	e.server, e.began, e.outcome, e.nature, e.open = server, r.began, f.Outcome, f.Nature, true
	if e.epoch != r.epoch {
		e.on, e.epoch = nil, r.epoch
	}
	if f.Nature == Setting && !slices.Contains(e.on, server) {
		e.on = append(e.on, server)
	}
}

// hasFailedOn reports whether the item has failed on the server since the run's contact
// began anew.
func (e *Evidence) hasFailedOn(s *server, c *contact) bool {
	return e.epoch == c.epoch && slices.Contains(e.on, s.name)
}

// failedEverywhere reports whether an item of a run whose items are charged has failed on
// all servers: one that is away counts no more after maxUnknown.
func (l *Ledger) failedEverywhere(c *contact, e *Evidence, now time.Time) bool {
	return e.epoch == c.epoch && (len(e.on) >= len(l.servers) || now.Sub(c.failing) >= maxUnknown)
}

// close judges the open try, if others were answered meanwhile: else it proves nothing.
// Neither does one while nothing tells of the run, when comparisons may be small questions.
func (l *Ledger) close(item Item, e *Evidence) {
	if !e.open || !l.contact(item.Run).tells() {
		return
	}
	s := l.server(e.server)
	all, failed := s.meanwhile(item, e.began)
	if failed == all {
		return
	}
	e.open = false
	share := max(leastShare, float64(failed)/float64(all), s.usual(item.Run, e.nature))
	if e.tries == 0 {
		e.product = 1
	} else {
		s.repeated(e.outcome, share)
	}
	e.tries++
	e.product *= share
}

const (
	leastShare = 0.01
	maxProduct = 1e-5
	// stickyTries is how many tries an item has if its outcome sticks to items. The
	// second one shows whether it still does.
	stickyTries = 2
	// An item that failed so often in a row while others were answered is charged,
	// whatever the shares. What may pass is tried for longer.
	maxTries       = 20
	maxOutageTries = 100
)

// Judgement says what to do about an item that failed.
type Judgement struct {
	Charge bool // the fault is the item's
	// Compare says that no other request was answered meanwhile: the server should get
	// a comparison before the item is weighed again.
	Compare bool
}

// Weigh judges the item's last try by what other requests met on the same server
// since it began. While the server is doubted, the try stays open. Least is the least
// number of tries before the item is charged.
func (l *Ledger) Weigh(item Item, e *Evidence, least int) Judgement {
	l.close(item, e)
	c := l.contact(item.Run)
	if c.charging && e.nature == Setting && l.failedEverywhere(c, e, e.began) &&
		(e.failed >= max(least, 1) || e.outcome == c.earlier) {
		return Judgement{Charge: true}
	}
	if e.open && (c.proven || c.charging) && !l.server(e.server).doubted {
		return Judgement{Compare: true}
	}
	longest := maxTries
	if e.nature == Outage {
		longest = maxOutageTries
	}
	enough := e.tries >= max(least, 1) && (e.product < maxProduct || e.tries >= longest)
	if e.nature == Setting && l.server(e.server).sticks(e.outcome) {
		enough = e.tries >= stickyTries
	}
	if !enough || !c.tells() || c.charged >= maxCharged && !c.charging {
		return Judgement{}
	}
	c.charged++
	return Judgement{Charge: true}
}
