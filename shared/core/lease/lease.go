// Package lease is a process's judgement of its own right to write.
//
//	    beat sent, and it succeeded
//	  ┌──────────────┐
//	  ▼              │
//	Held ──self-fence time since the last good beat was sent──▶ Lost (terminal)
//
// It counts from the monotonic time at which the last good heartbeat was
// *sent*, so that the lease ends here before anybody else may take over
// (I11): the self-fence time is shorter than the failure timeout. A lost lease
// never comes back; the process starts again under a new name. Terms fence
// messages of an earlier holder in the same way. The package reads no clock.
package lease

import (
	"sync"
	"time"
)

// Lease is one process's lease. Safe for concurrent use.
type Lease struct {
	fence time.Duration
	mu    sync.Mutex
	sent  time.Time
	lost  bool
}

// New returns a lease that holds from now on, as if a beat had been sent now.
func New(fence time.Duration, now time.Time) *Lease {
	return &Lease{fence: fence, sent: now}
}

// Renew says that a beat sent at that time succeeded. It does not revive a
// lost lease, and an older beat changes nothing.
func (l *Lease) Renew(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent.After(l.sent) && !l.lost {
		l.sent = sent
	}
}

// Valid reports whether the process may still write at now.
func (l *Lease) Valid(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.sent) >= l.fence {
		l.lost = true
	}
	return !l.lost
}

// Terms remembers the highest term seen and refuses lower ones. The zero value
// has seen term 0. Not safe for concurrent use.
type Terms struct{ highest uint64 }

// Accept reports whether a message of that term may act.
func (t *Terms) Accept(term uint64) bool {
	if term < t.highest {
		return false
	}
	t.highest = term
	return true
}
