// Package clock is how rollout's functions and workers read the time.
//
// The pure core takes the time as an argument, and timers come from package time.
// A Clock only returns the present time, so that a test can give one process a
// clock that differs from the others'.
package clock

import "time"

// Clock returns the present time. Its times must have Go's monotonic reading, so that
// the difference of two of them does not depend on changes of the wall clock. It is
// safe for concurrent use.
type Clock interface {
	Now() time.Time
}

// System is the machine's clock.
type System struct{}

// Now returns time.Now().
func (System) Now() time.Time { return time.Now() }

// Skewed is a clock that is ahead of the machine's clock by Offset, or behind it if
// Offset is negative. Tests use it.
type Skewed struct{ Offset time.Duration }

// Now returns the machine's time plus the offset.
func (s Skewed) Now() time.Time { return time.Now().Add(s.Offset) }

// Fixed is a clock that always shows the same time, for tests.
type Fixed time.Time

// Now returns that time; see Clock.
func (f Fixed) Now() time.Time { return time.Time(f) }
