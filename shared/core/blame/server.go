package blame

import (
	"slices"
	"time"
)

// Waits of a doubted server between comparisons.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 10 * time.Second
	maxHint   = 5 * time.Minute
)

// itemsToDoubt is how many different items must fail in a row until their server is
// doubted.
const itemsToDoubt = 3

// server is what the ledger knows of one server.
type server struct {
	name string

	// The failures since the last answer to a request that began after the first of
	// them.
	failing []Item // different ones, at most itemsToDoubt
	since   time.Time
	last    Failure

	proven    bool // it has answered
	trying    int  // requests of items in flight that find out whether it answers
	yields    bool // the last try failed: the next request goes to a server that answers, if there is one
	doubted   bool
	comparing bool // a comparison is under way
	// inconclusive says that the last comparison failed for a setting. That may be its
	// own: its model is gone, or its key. So a request of an item is next.
	inconclusive bool
	wait         time.Duration
	due          time.Time // of the next comparison, or of the next request that finds out whether it answers

	recent ring // what comparisons and the first requests of items met
	// The products of the shares over the repetitions that met an outcome again, since
	// a repetition was answered: how likely that is if it does not depend on the item.
	repeats map[Outcome]float64
}

// ended is a request that has ended.
type ended struct {
	item   Item
	began  time.Time
	failed bool
	nature Nature // of the failure
}

// answered records an answer.
func (s *server) answered(r Request) {
	s.proven = true
	s.record(r, ended{})
	if !r.first && r.comparison == nil {
		s.repeats = nil
	}
	if s.since.IsZero() || r.comparison == nil && !r.began.After(s.since) {
		return
	}
	s.failing, s.since, s.doubted, s.inconclusive, s.wait = s.failing[:0], time.Time{}, false, false, 0
}

// failed records a failure.
func (s *server) failed(r Request, f Failure, now time.Time) {
	s.record(r, ended{failed: true, nature: f.Nature})
	s.last, s.yields = f, s.yields || r.tries == s
	if s.since.IsZero() {
		s.since = now
	}
	if len(s.failing) < itemsToDoubt && !slices.Contains(s.failing, r.item) {
		s.failing = append(s.failing, r.item)
	}
	doubt := !s.doubted && (r.comparison != nil || len(s.failing) == itemsToDoubt)
	if probe := r.comparison != nil || r.tries == s; doubt || s.doubted && probe {
		s.inconclusive = r.comparison != nil && f.Nature == Setting
		s.wait = min(max(2*s.wait, firstWait), lastWait)
		s.due = now.Add(max(s.wait, min(f.RetryAfter, maxHint)))
	}
	s.doubted = s.doubted || doubt
}

// mayTry reports whether one more request may find out whether the server answers.
func (s *server) mayTry(now time.Time) bool {
	return s.trying < firstRequests && (s.since.IsZero() || s.trying == 0) && !now.Before(s.due)
}

// tryAbandoned records that a request that tried the server never reached it, or that
// nothing is known of it: others do not follow at once.
func (s *server) tryAbandoned(now time.Time) {
	s.wait = min(max(2*s.wait, firstWait), lastWait)
	s.due = now.Add(s.wait)
}

// record records what a request met. Repetitions are left out: items that fail again
// and again say nothing of others.
func (s *server) record(r Request, e ended) {
	if r.first {
		e.item, e.began = r.item, r.began
		s.recent.add(e)
	}
}

const (
	maxStickyProduct = 1e-6
	maxOutcomes      = 32 // bounds a server's repeats
)

// repeated records that a request met the outcome that an earlier one for the same item
// had met, while the share of others failed.
func (s *server) repeated(o Outcome, share float64) {
	product, ok := s.repeats[o]
	switch {
	case ok:
		s.repeats[o] = product * share
	case s.repeats == nil:
		s.repeats = map[Outcome]float64{o: share}
	case len(s.repeats) < maxOutcomes:
		s.repeats[o] = share
	}
}

// sticks reports whether the items that meet the outcome meet it again and again while
// others are answered, so that it depends on the item.
func (s *server) sticks(o Outcome) bool {
	product, ok := s.repeats[o]
	return ok && product < maxStickyProduct
}

// meanwhile returns how many requests of the item's run, comparisons included, began after
// the time for others and have ended, and how many of them failed. What other runs meet
// says nothing: their model or key may be another one.
func (s *server) meanwhile(item Item, after time.Time) (all, failed int) {
	for _, e := range s.recent.values {
		if e.item == item || e.item.Run != item.Run || e.began.Before(after) {
			continue
		}
		all++
		if e.failed {
			failed++
		}
	}
	return all, failed
}

// usual estimates how probable it is that a request of the run fails so. Outcomes of one
// nature count together: a server that refuses at random may do so in several ways. It
// errs to the high side: the item in question is among those that failed.
func (s *server) usual(run string, n Nature) float64 {
	all, same := 0, 0
	for _, e := range s.recent.values {
		if e.item.Run != run {
			continue
		}
		all++
		if e.failed && e.nature == n {
			same++
		}
	}
	return float64(same+1) / float64(all+2)
}

// ring holds the newest requests that were added.
type ring struct {
	values []ended
	next   int
}

// maxRing bounds a ring.
const maxRing = 256

func (r *ring) add(v ended) {
	if len(r.values) < maxRing {
		r.values = append(r.values, v)
		return
	}
	r.values[r.next] = v
	r.next = (r.next + 1) % maxRing
}
