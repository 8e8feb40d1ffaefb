package pipeline

import (
	"time"

	"rollout/shared/fault"
)

// Watchdog decides whether a peer has been silent for too long. The limit is positive.
type Watchdog struct {
	What  string // that is awaited. Example: "result"
	Limit time.Duration

	since time.Time
	armed bool
}

// Arm starts the wait at now, unless it has started.
func (w *Watchdog) Arm(now time.Time) {
	if !w.armed {
		w.since, w.armed = now, true
	}
}

// Seen restarts the wait at now.
func (w *Watchdog) Seen(now time.Time) { w.since, w.armed = now, true }

// Disarm ends the wait: nothing is awaited.
func (w *Watchdog) Disarm() { w.armed = false }

// Deadline returns when the wait has lasted too long; false if nothing is awaited.
func (w *Watchdog) Deadline() (time.Time, bool) { return w.since.Add(w.Limit), w.armed }

// Check returns Unavailable if the wait has lasted for the limit.
func (w *Watchdog) Check(now time.Time) error {
	if at, armed := w.Deadline(); armed && !now.Before(at) {
		return fault.New(fault.Unavailable, "no %s for %v: the limit is %v", w.What, now.Sub(w.since), w.Limit)
	}
	return nil
}
