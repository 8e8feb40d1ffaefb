package scaling

import "time"

// Boots is what the past boots of a pool's machines tell about the next one. A machine that
// ends before it answered anything has failed to boot, whatever ended it: the next one would
// most likely fail, too, and cost money. So the pauses between boots grow.
//
//	        a boot failed                     a boot failed after the pause
//	steady ───────────────▶ paused ─▶ trying ───────────────────────────────▶ paused
//	  ▲                      1, 2, 4, 8 … × the first pause, at most 15 min     │
//	  ├──── a worker that started after the failure answered ───────────────────┤
//	  └──── none failed for an hour more than a boot may take ──────────────────┘
//
// The zero value is that of a pool whose machines never failed.
type Boots struct {
	Failures int       `json:"failures,omitempty"` // in a row
	FailedAt time.Time `json:"failed_at,omitzero"` // of the newest failure that is counted
	RetryAt  time.Time `json:"retry_at,omitzero"`  // no machine is asked for before
	Reason   string    `json:"reason,omitempty"`   // of the newest failure, for people
}

// Failed returns the boots after one more failure, and whether that changes them. Failures must
// come in the order of their times: one that is not newer than the last was counted before. The
// failures of machines that booted side by side count once, as the later ones fall into the
// pause. first is the pause after the first failure, and longest how long a boot may take: the
// next failure comes that much later than the pause.
func (b Boots) Failed(at time.Time, reason string, first, longest time.Duration) (Boots, bool) {
	if !at.After(b.FailedAt) {
		return b, false
	}
	b.FailedAt, b.Reason = at, reason
	if at.Before(b.RetryAt) {
		return b, true
	}
	if at.Sub(b.RetryAt) > longest+forgetAfter {
		b.Failures = 0
	}
	b.Failures++
	b.RetryAt = at.Add(min(first<<min(b.Failures-1, 10), maxPause))
	return b, true
}

// Answered returns the boots after a worker that started at that time answered, and whether
// that changes them. Workers that started before the newest failure say nothing.
func (b Boots) Answered(started time.Time) (Boots, bool) {
	if b.Failures == 0 || !started.After(b.FailedAt) {
		return b, false
	}
	return b.Forgiven(), true
}

// Forgiven returns the boots without their failures, for example because people were told
// and decide what happens next.
func (b Boots) Forgiven() Boots { return Boots{FailedAt: b.FailedAt} }

// maxAhead bounds how far the clock of a machine that reports a failure may be ahead.
const maxAhead = time.Minute

// Waits reports whether no machine may be asked for now. A pause that ends later than any can
// is a wrong time, and stops no pool.
func (b Boots) Waits(now time.Time) bool {
	return now.Before(b.RetryAt) && b.RetryAt.Sub(now) <= maxPause+maxAhead
}
