package notification

import "time"

// Limits of the delivery of one event.
const (
	firstPause = 5 * time.Second // after the first failed attempt; it doubles
	maxPause   = 30 * time.Minute
	// giveUpAfter is how long an event is tried, and minAttempts how often at least: an
	// installation may be off in between.
	giveUpAfter = 24 * time.Hour
	minAttempts = 8
)

// Delivery is how far the events of one subject, a run or a pool, are delivered to one
// destination. Events are delivered one after the other, by their numbers:
//
//	idle ──claim──▶ claimed ──delivered──────────────────▶ idle, at the next event
//	 ▲                │ │ └──refused for good, or failed for a day: given up ──▶ idle, at the next event
//	 │                │ └──failed──▶ waits (5 s, doubling to 30 min) ──▶ idle, at the same event
//	 └──claim lapsed──┘
//
// A claim keeps two processes from sending the same event at the same time. It is no lock:
// after it lapses, an event may be sent twice, with the same id.
type Delivery struct {
	Sequence     uint64    `json:"sequence"` // of the event that was delivered, or given up, last
	ClaimedUntil time.Time `json:"claimed_until,omitzero"`
	Attempts     int       `json:"attempts,omitempty"` // that failed, of the next event
	FailingSince time.Time `json:"failing_since,omitzero"`
	RetryAt      time.Time `json:"retry_at,omitzero"`
	Problem      string    `json:"problem,omitempty"`  // of the latest attempt that failed
	GivenUp      int       `json:"given_up,omitempty"` // events that were never delivered
}

// NextAt returns when the next event may be sent; a time that has passed means now. A time
// beyond what any pause or claim allows comes from a clock that was set back, and counts as
// passed.
func (d Delivery) NextAt(now time.Time) time.Time {
	at := d.RetryAt
	if d.ClaimedUntil.After(at) {
		at = d.ClaimedUntil
	}
	if at.Sub(now) > maxPause {
		return time.Time{}
	}
	return at
}

// Due reports whether the next event may be sent now.
func (d Delivery) Due(now time.Time) bool { return !d.NextAt(now).After(now) }

// Claim returns the delivery while a process sends events, for so long at most.
func (d Delivery) Claim(now time.Time, lease time.Duration) Delivery {
	d.ClaimedUntil = now.Add(lease)
	return d
}

// Delivered returns the delivery after the event with that number was taken. It ends the
// claim. A late report about an earlier event changes nothing else.
func (d Delivery) Delivered(sequence uint64) Delivery {
	d.ClaimedUntil = time.Time{}
	if sequence > d.Sequence {
		d = d.next(sequence)
	}
	return d
}

// Failure is an attempt that failed.
type Failure struct {
	Sequence   uint64 // of the event
	Problem    string
	RetryAfter time.Duration // what the destination asks for; 0 if it asks for nothing
	Final      bool          // the destination will never take it
}

// Failed returns the delivery after a failed attempt. It ends the claim.
func (d Delivery) Failed(f Failure, now time.Time) Delivery {
	d.ClaimedUntil = time.Time{}
	if f.Sequence <= d.Sequence { // another process was done with it
		return d
	}
	if d.Attempts == 0 {
		d.FailingSince = now
	}
	d.Attempts++
	if f.Final || d.Attempts >= minAttempts && now.Sub(d.FailingSince) >= giveUpAfter {
		d = d.next(f.Sequence)
		d.GivenUp++
		d.Problem = f.Problem
		return d
	}
	pause := min(firstPause<<min(d.Attempts-1, 20), maxPause)
	d.Problem, d.RetryAt = f.Problem, now.Add(min(max(pause, f.RetryAfter), maxPause))
	return d
}

// next returns the delivery at the event after that number. The problem of a given-up event
// is kept for people.
func (d Delivery) next(sequence uint64) Delivery {
	problem := d.Problem
	if d.GivenUp == 0 {
		problem = ""
	}
	return Delivery{Sequence: sequence, GivenUp: d.GivenUp, Problem: problem}
}
