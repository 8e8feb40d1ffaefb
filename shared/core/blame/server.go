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
	trying    int  // requests in flight that try a server that has not
	doubted   bool
	comparing bool // a comparison is under way
	wait      time.Duration
	due       time.Time // of the next comparison, or of the next try of a server that has not answered

	recent ring // what comparisons and the first requests of items met
	// The products of the shares over the repetitions that met an outcome again, since
	// a repetition was answered: how likely that is if it does not depend on the item.
	repeats map[Outcome]float64
}

// ended is a request that has ended.
type ended struct {
	item    Item
	began   time.Time
	outcome Outcome
}

// answered records an answer.
func (s *server) answered(r Request) {
	s.proven = true
	s.record(r, Answered)
	if !r.first && r.comparison == nil {
		s.repeats = nil
	}
	if s.since.IsZero() || r.comparison == nil && !r.began.After(s.since) {
		return
	}
	s.failing, s.since, s.doubted, s.wait = s.failing[:0], time.Time{}, false, 0
}

// failed records a failure.
func (s *server) failed(r Request, f Failure, now time.Time) {
	s.record(r, f.Outcome)
	s.last = f
	if s.since.IsZero() {
		s.since = now
	}
	if len(s.failing) < itemsToDoubt && !slices.Contains(s.failing, r.item) {
		s.failing = append(s.failing, r.item)
	}
	doubt := !s.doubted && (r.comparison != nil || len(s.failing) == itemsToDoubt)
	if doubt || s.doubted && r.comparison != nil {
		s.wait = min(max(2*s.wait, firstWait), lastWait)
		s.due = now.Add(max(s.wait, min(f.RetryAfter, maxHint)))
	}
	s.doubted = s.doubted || doubt
}

// mayTry reports whether one more request may try the server, which has not answered
// yet.
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
func (s *server) record(r Request, o Outcome) {
	if r.first {
		s.recent.add(ended{r.item, r.began, o})
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

// meanwhile returns how many requests for others than the item began after the time
// and have ended, and how many of them failed.
func (s *server) meanwhile(item Item, after time.Time) (all, failed int) {
	for _, e := range s.recent.values {
		if e.item == item || e.began.Before(after) {
			continue
		}
		all++
		if e.outcome != Answered {
			failed++
		}
	}
	return all, failed
}

// usual estimates the probability of the outcome. It errs to the high side: the item
// in question is among those that met it.
func (s *server) usual(o Outcome) float64 {
	same := 0
	for _, e := range s.recent.values {
		if e.outcome == o {
			same++
		}
	}
	return float64(same+1) / float64(len(s.recent.values)+2)
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
