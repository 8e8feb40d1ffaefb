// Package clock is the only way in which rollout's shell reads the time.
//
// The pure engine takes `now` as an argument. Timers come from package time
// itself and run under testing/synctest in tests; a Clock only says what time
// it is, so that a simulated process can be given a skewed one.
package clock

import "time"

// Clock tells the time. Implementations must keep Go's monotonic reading so
// that two readings of one process can be subtracted whatever the wall clock
// does meanwhile.
type Clock interface {
	Now() time.Time
}

// System is the machine's clock.
type System struct{}

// Now returns time.Now().
func (System) Now() time.Time { return time.Now() }

// Skewed is a clock that is ahead of the machine's by Offset (behind, if
// negative). Simulations use it.
type Skewed struct{ Offset time.Duration }

// Now returns the machine's time plus the offset.
func (s Skewed) Now() time.Time { return time.Now().Add(s.Offset) }
