package blame

import (
	"slices"
	"time"
)

// WithoutAnswer is how long a proven run may be without any answer until its setting is at
// fault.
const WithoutAnswer = time.Minute

const (
	// firstRequests is how many requests of an unproven run are in flight at once,
	// until one has failed, or for patience.
	firstRequests = 5
	patience      = 10 * time.Second
	// firstTrials is how many requests follow one by one when the first have failed.
	firstTrials = 4
	firstTrial  = 500 * time.Millisecond
	// maxTrials bounds the trials of a run whose servers answer comparisons, and how many
	// failures of a setting others may hide that may pass.
	maxTrials = 12
	// maxCharged items must be charged before a proven run is refused whose server answers
	// comparisons: fewer may be at fault themselves, such as the last ones of a run.
	maxCharged = 32
	// Failures further apart than maxSilence do not count together: a server that is
	// silent hangs.
	maxSilence = 30 * time.Second
	// maxUnknown is how long a run waits for a server that is away before it is refused
	// for what all others meet: that one may answer.
	maxUnknown = 5 * time.Minute
)

// contact is what the ledger knows of one run.
type contact struct {
	control uint64  // the sequence of the run's control document
	earlier Outcome // of the refusal for which the run paused before
	epoch   int     // counts what began the contact anew
	used    uint64

	proven   bool // a request has succeeded
	worked   bool // the server has found an item at fault itself
	charging bool // the run was resumed and meets the earlier outcome: items are charged
	refusal  *Refusal
	// lookingUp says that the caller finds out whether the run has answers elsewhere.
	lookingUp bool

	inFlight int
	began    time.Time // the first request
	trials   int
	due      time.Time // of the next trial
	// The failures since the last answer to a request that began after the first of
	// them.
	failing  time.Time // of the first one; zero without any
	charged  int       // how many items were charged
	outages  int       // failures that may pass
	denials  int       // those of a setting
	on       []string  // the servers on which items failed, or a comparison for a setting
	same     bool      // one had the earlier outcome
	settings time.Time // since when all failures, also of comparisons, are of settings; zero if the last may pass
	met      time.Time // the last failure, also of a comparison
	compared time.Time // since when its server answers others; zero if it does not
	server   string
	last     Failure
	cleared  string // a server that has answered a comparison: one more trial there; "" for none
	turn     int    // counts the comparisons of an unproven run
	// inconclusive says that the last comparison failed for a setting. That may be its
	// own: its model is gone, or the server has no chat. Only a trial tells.
	inconclusive bool
}

// restart forgets what the run met: a user has resumed it.
func (c *contact) restart(control uint64, earlier Outcome) {
	*c = contact{control: control, earlier: earlier, epoch: c.epoch + 1, used: c.used}
}

// answered records an answer to a request of the run.
func (c *contact) answered(r Request) {
	if c.proven && !r.began.After(c.failing) {
		return
	}
	c.prove()
}

// prove records that a request of the run was answered, by this worker or another one.
func (c *contact) prove() {
	c.proven, c.charging, c.earlier, c.lookingUp = true, false, Answered, false
	c.forget()
}

// works records that the server looked at a request of the run and found its item at
// fault. So the failures before had another cause than all that the run's requests have
// in common.
func (c *contact) works(r Request) {
	c.worked = true
	if r.began.After(c.failing) {
		c.forget()
	}
}

// tells reports whether an item's failures tell something of the item: until the server
// has looked at a request of the run, they may tell of the run.
func (c *contact) tells() bool { return c.proven || c.worked || c.charging }

// forget forgets the failures since the last answer.
func (c *contact) forget() {
	c.trials, c.charged, c.outages, c.denials, c.on = 0, 0, 0, 0, nil
	c.same, c.inconclusive = false, false
	c.failing, c.settings, c.compared, c.cleared = time.Time{}, time.Time{}, time.Time{}, ""
}

// failed records a failure.
func (c *contact) failed(server string, f Failure, now time.Time) {
	if c.failing.IsZero() {
		c.failing = now
	}
	if f.Nature == Outage {
		c.outages++
	} else {
		c.denials++
	}
	c.server, c.last, c.same = server, f, c.same || f.Outcome == c.earlier
	c.failedOn(server)
	c.meet(f.Nature, now)
	wait := min(firstTrial<<min(c.trials, 6), lastWait)
	c.due = now.Add(max(wait, min(f.RetryAfter, maxHint)))
}

// meet records the nature of the last failure.
func (c *contact) meet(n Nature, now time.Time) {
	switch {
	case n == Outage:
		c.settings = time.Time{}
	case c.settings.IsZero(), now.Sub(c.met) > maxSilence:
		c.settings = now
	}
	c.met = now
}

// comparisonFailed records that the run's server failed a comparison, and gets the next
// one at due.
func (c *contact) comparisonFailed(server string, n Nature, now, due time.Time) {
	if n == Setting {
		c.failedOn(server)
	}
	c.meet(n, now)
	c.compared = time.Time{}
	if !c.proven {
		c.due, c.inconclusive = due, n == Setting
	}
}

// nature returns what the failures since the last answer mean together. A few that may
// pass, among many of a setting, are another matter.
func (c *contact) nature() Nature {
	if c.outages > 0 && (c.denials < maxTrials || c.denials < c.outages) {
		return Outage
	}
	return Setting
}

// hopeless reports whether a setting is at fault for what a run meets for long. A failure
// after that time must show it: what was met before may be mended since.
func (c *contact) hopeless(now time.Time) bool {
	switch {
	case c.failing.IsZero():
		return false
	case !c.compared.IsZero():
		return c.charged >= maxCharged && c.met.Sub(c.compared) >= WithoutAnswer
	}
	return !c.settings.IsZero() && c.met.Sub(c.settings) >= WithoutAnswer && now.Sub(c.met) <= maxSilence
}

func (c *contact) failedOn(server string) {
	if !slices.Contains(c.on, server) {
		c.on = append(c.on, server)
	}
}

// everywhere reports whether the run failed on all servers: none but those that are away
// for long may still answer it. What it met before they were away for that long tells
// nothing: it may be mended since.
func (c *contact) everywhere(servers int) bool {
	return len(c.on) >= servers || c.met.Sub(c.failing) >= maxUnknown
}

// concerns reports whether the run fails, so that what others meet on the server tells
// something of it. Comparisons of an unproven run go to all servers.
func (c *contact) concerns(server string, comparison bool) bool {
	return !c.failing.IsZero() && (c.server == server || comparison && !c.proven)
}

// otherAnswered records that a server answers others: a comparison, or a request of
// another run.
func (c *contact) otherAnswered(server string, comparison bool, now time.Time) {
	if comparison {
		c.cleared = server
	}
	if c.compared.IsZero() {
		c.compared = now
	}
}

// refuse ends the run's contact with its server, or charges the items if the run was
// resumed and met the earlier outcome again.
func (c *contact) refuse() {
	if c.same {
		c.charging = true
		return
	}
	c.refusal = &Refusal{Server: c.server, Failure: c.last}
}

// admit decides about a request of an unproven run, which has that many servers.
func (c *contact) admit(servers int, now time.Time) decision {
	switch {
	case c.failing.IsZero():
		if c.inFlight < firstRequests || now.Sub(c.began) >= patience {
			return decision{verb: goOn}
		}
		return decision{verb: wait, until: c.began.Add(patience)}
	case c.inFlight > 0 && now.Sub(c.failing) < WithoutAnswer: // they will tell more
		return decision{verb: wait, until: c.failing.Add(WithoutAnswer)}
	case c.trials < firstTrials && now.Before(c.due):
		return decision{verb: wait, until: c.due}
	case c.trials < firstTrials:
		c.trials++
		return decision{verb: goOn}
	case c.lookingUp:
		return decision{verb: wait, until: now.Add(lastWait)}
	case c.everywhere(servers) && (c.nature() == Setting || c.trials >= maxTrials && !c.compared.IsZero() ||
		c.hopeless(now)):
		c.lookingUp = true
		return decision{verb: lookUp}
	case c.cleared != "":
		server := c.cleared
		c.cleared = ""
		c.trials++
		return decision{verb: goOn, server: server}
	case now.Before(c.due):
		return decision{verb: wait, until: c.due}
	case c.inconclusive:
		c.inconclusive = false
		return decision{verb: goOn}
	}
	return decision{verb: compare}
}

// decision is what a contact decides about a request.
type decision struct {
	verb   verb
	until  time.Time // of wait
	server string    // of goOn; "" for any
}

type verb uint8

const (
	goOn    verb = iota
	wait         // until the time, or until something changes
	compare      // the server gets a comparison; wait
	lookUp       // find out whether the run has answers elsewhere; wait
)
