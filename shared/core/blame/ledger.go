package blame

import (
	"math"
	"time"
)

// maxRuns bounds the runs that a ledger remembers.
const maxRuns = 64

// Ledger records what requests met, by server and run. See the package comment.
type Ledger struct {
	servers []*server
	runs    map[string]*contact
	uses    uint64
}

// New returns a ledger of the named servers, at least one.
func New(servers ...string) *Ledger {
	l := &Ledger{runs: map[string]*contact{}}
	for _, name := range servers {
		l.servers = append(l.servers, &server{name: name})
	}
	return l
}

// server returns the named server. A name that is not known stands for the first one.
func (l *Ledger) server(name string) *server {
	for _, s := range l.servers {
		if s.name == name {
			return s
		}
	}
	return l.servers[0]
}

// Begin tells of work on a run whose control document has the sequence. A higher one
// than before begins the run's contact anew if the run was refused. Earlier is the
// outcome of the refusal for which the run last paused; "" if it did not. Answered says
// that an earlier holder of the work has had answers: in a run that was never refused,
// they prove that it works. What a run met before its control document changed does not
// count as a reason to refuse it: a user may have mended that.
func (l *Ledger) Begin(run string, control uint64, earlier Outcome, answered bool) {
	c := l.contact(run)
	switch {
	case control <= c.control && c.used > 0:
	case c.refusal != nil, !c.proven && earlier != c.earlier:
		c.restart(control, earlier)
	default:
		if c.proven && c.used > 0 {
			c.forget()
		}
		c.control, c.earlier = control, earlier
	}
	l.uses++
	c.used = l.uses
	if answered && earlier == Answered && c.refusal == nil && !c.proven {
		c.prove()
	}
}

// LookedUp reports what the caller has found out because of Admission.LookUp: whether
// requests of the run were answered since it began, or was last resumed after a refusal.
func (l *Ledger) LookedUp(run string, answered bool) {
	c := l.contact(run)
	if !c.lookingUp {
		return
	}
	c.lookingUp = false
	if answered {
		c.prove()
	} else {
		c.refuse()
	}
}

// NotPaused reports that a refused run goes on: coordinate knows of answers elsewhere. If it
// is to be refused again, an unproven run is looked up before.
func (l *Ledger) NotPaused(run string) { l.contact(run).refusal = nil }

// LookUpAgain reports that the caller could not find it out.
func (l *Ledger) LookUpAgain(run string) { l.contact(run).lookingUp = false }

func (l *Ledger) contact(run string) *contact {
	if c := l.runs[run]; c != nil {
		return c
	}
	if len(l.runs) >= maxRuns {
		l.forget()
	}
	c := &contact{}
	l.runs[run] = c
	return c
}

// forget forgets the run that was used least recently and has nothing in flight.
func (l *Ledger) forget() {
	oldest, least := "", uint64(math.MaxUint64)
	for name, c := range l.runs {
		if c.inFlight == 0 && c.used < least {
			oldest, least = name, c.used
		}
	}
	delete(l.runs, oldest)
}

// Admission says whether a request may begin.
type Admission struct {
	// Go says that the request begins now, on one of Servers; nil is any. The caller
	// ends it by Answered, Failed or Abandon.
	Go      bool
	Servers []string
	Request Request
	// Refused is why the run must pause; nil if it need not.
	Refused *Refusal
	// Until is when to ask again, unless the ledger changes before, if the request
	// may not begin.
	Until time.Time
	// LookUp says that no request of the run is answered as far as the ledger knows, and
	// that the run is refused if that is true. The caller finds it out, and reports it by
	// LookedUp or LookUpAgain. One request at a time is told so.
	LookUp bool
	// Compare names a server that should get a comparison now, which the caller begins
	// by Compare; "" for none.
	Compare string
}

// Admit decides about a request of the item, whose tries so far have shown e. First says
// that it is the item's first request.
func (l *Ledger) Admit(item Item, e *Evidence, first bool, now time.Time) Admission {
	c := l.contact(item.Run)
	if c.proven && c.refusal == nil && c.hopeless(now) && c.everywhere(len(l.servers)) {
		c.refuse()
	}
	switch {
	case c.refusal != nil:
		return Admission{Refused: c.refusal}
	case c.charging:
		return l.admitCharging(item, c, e, first, now)
	case c.proven:
		return l.admitProven(item, c, first, now)
	}
	return l.admitUnproven(item, c, first, now)
}

// admitCharging decides about a request of a run whose items are charged: it goes to a
// server on which the item has not failed, if there is one.
func (l *Ledger) admitCharging(item Item, c *contact, e *Evidence, first bool, now time.Time) Admission {
	a := Admission{Compare: l.dueComparison(now), Until: now.Add(lastWait)}
	if len(e.on) == 0 || l.failedEverywhere(c, e, now) {
		return l.begin(item, c, first, now, a)
	}
	for _, s := range l.servers {
		switch {
		case e.hasFailedOn(s, c):
		case s.mayTry(now):
			a.Servers = []string{s.name}
			s.trying++
			a = l.begin(item, c, first, now, a)
			a.Request.tries = s
			return a
		case s.due.After(now) && s.due.Before(a.Until):
			a.Until = s.due
		}
	}
	return a
}

// admitUnproven decides about a request of a run of which none is known to have
// succeeded.
func (l *Ledger) admitUnproven(item Item, c *contact, first bool, now time.Time) Admission {
	d := c.admit(len(l.servers), now)
	switch d.verb {
	case wait:
		return Admission{Until: d.until}
	case lookUp:
		return Admission{Until: now.Add(lastWait), LookUp: true}
	case compare:
		return Admission{Until: now.Add(lastWait), Compare: l.nextComparison(c)}
	}
	var a Admission
	if d.server != "" {
		a.Servers = []string{d.server}
	}
	return l.begin(item, c, first, now, a)
}

// nextComparison names the server whose turn it is to get a comparison for an unproven
// run; "" if it has one. All get some: one that answers may be the only one that does.
func (l *Ledger) nextComparison(c *contact) string {
	s := l.servers[c.turn%len(l.servers)]
	if s.comparing {
		return ""
	}
	c.turn++
	return s.name
}

// admitProven decides about a request of a proven run, by the servers that are
// trusted. Few requests try a server that has not answered yet, or that failed a
// comparison for a setting.
func (l *Ledger) admitProven(item Item, c *contact, first bool, now time.Time) Admission {
	usable := 0
	for _, s := range l.servers {
		if s.proven && !s.doubted {
			usable++
		}
	}
	if usable == len(l.servers) {
		return l.begin(item, c, first, now, Admission{})
	}
	a := Admission{Compare: l.dueComparison(now)}
	var try *server
	for _, s := range l.servers {
		switch {
		case s.proven && !s.doubted:
			a.Servers = append(a.Servers, s.name)
		case (!s.doubted || s.inconclusive) && s.mayTry(now):
			if try == nil || s.since.IsZero() && !try.since.IsZero() { // one that has not failed comes first
				try = s
			}
		case s.doubted && s.due.After(now) && (a.Until.IsZero() || s.due.Before(a.Until)):
			a.Until = s.due
		}
	}
	if try != nil && try.yields && len(a.Servers) > 0 {
		try.yields, try = false, nil
	}
	if try != nil {
		a.Servers = []string{try.name}
		try.trying++
	}
	if len(a.Servers) > 0 {
		a = l.begin(item, c, first, now, a)
		a.Request.tries = try
		return a
	}
	if a.Until.IsZero() {
		a.Until = now.Add(lastWait)
	}
	return a
}

// dueComparison names a server that should get a comparison now; "" if none should.
func (l *Ledger) dueComparison(now time.Time) string {
	for _, s := range l.servers {
		if s.doubted && !s.comparing && !s.inconclusive && !now.Before(s.due) {
			return s.name
		}
	}
	return ""
}

func (l *Ledger) begin(item Item, c *contact, first bool, now time.Time, a Admission) Admission {
	if c.began.IsZero() {
		c.began = now
	}
	c.inFlight++
	a.Go, a.Until = true, time.Time{}
	a.Request = Request{item: item, contact: c, epoch: c.epoch, began: now, first: first}
	return a
}

// Compare begins a comparison on the server for a run: if it can, the caller repeats a
// request of that run.
func (l *Ledger) Compare(server, run string, now time.Time) Request {
	s := l.server(server)
	s.comparing = true
	return Request{item: Item{run, comparisonIndex}, comparison: s, began: now, first: true}
}

// Answered ends a request that was answered by the server.
func (l *Ledger) Answered(r Request, server string, now time.Time) {
	s := l.end(r, server)
	s.answered(r)
	if c := r.contact; c != nil && r.epoch == c.epoch {
		c.answered(r)
	}
	for _, c := range l.runs {
		if c != r.contact && c.concerns(s.name, r.comparison != nil) {
			c.otherAnswered(s.name, r.comparison != nil, now)
		}
	}
}

// Works ends a request that was not answered for a cause that the server named: the
// item is at fault, and the server works.
func (l *Ledger) Works(r Request, server string) {
	l.end(r, server).answered(r)
	if c := r.contact; c != nil && r.epoch == c.epoch {
		c.works(r)
	}
}

// Failed ends a request that failed on the server. It reports whether the item is
// charged at once, because its run was resumed and meets the same outcome again on the
// only server.
func (l *Ledger) Failed(r Request, server string, f Failure, now time.Time) (charge bool) {
	s := l.end(r, server)
	c := r.contact
	if c == nil {
		s.failed(r, f, now)
		for _, c := range l.runs {
			if c.concerns(s.name, true) {
				c.comparisonFailed(s.name, f.Nature, now, s.due)
			}
		}
		return false
	}
	s.inconclusive = false
	if r.epoch != c.epoch {
		return false
	}
	if c.proven { // the setting of an unproven run is no fault of its server
		s.failed(r, f, now)
	} else {
		s.record(r, ended{failed: true, nature: f.Nature})
		s.last = f
	}
	c.failed(s.name, f, now)
	return c.charging && f.Outcome == c.earlier && len(l.servers) == 1
}

// Abandon ends a request of which nothing is known.
func (l *Ledger) Abandon(r Request, now time.Time) {
	l.end(r, "")
	if r.tries != nil {
		r.tries.tryAbandoned(now)
	}
}

func (l *Ledger) end(r Request, name string) *server {
	s := l.server(name)
	if r.comparison != nil {
		s = r.comparison
		s.comparing = false
	}
	if r.tries != nil {
		r.tries.trying--
	}
	if c := r.contact; c != nil && r.epoch == c.epoch {
		c.inFlight--
	}
	return s
}

// Doubts returns the servers that are doubted, with what they said last.
func (l *Ledger) Doubts() map[string]Failure {
	var out map[string]Failure
	for _, s := range l.servers {
		if s.doubted {
			if out == nil {
				out = map[string]Failure{}
			}
			out[s.name] = s.last
		}
	}
	return out
}
