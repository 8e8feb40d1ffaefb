package worker

import (
	"sync"
	"time"
)

// lease is the worker's judgement of its own right to write.
//
//	     a heartbeat succeeded
//	   ┌──────────────┐
//	   ▼              │
//	valid ──fence since the last good heartbeat was sent──▶ lost (terminal)
//
// It counts from the monotonic time at which the last good heartbeat was sent,
// not from when its success was known. The fence is shorter than the failure
// timeout, so the lease ends here before another worker may take the shards
// (I11). A lost lease never comes back: the process starts again under a new ID.
// Safe for concurrent use.
type lease struct {
	fence time.Duration
	mu    sync.Mutex
	sent  time.Time
	lost  bool
}

// newLease returns a lease that is valid from now, as if a heartbeat had been
// sent now.
func newLease(fence time.Duration, now time.Time) *lease {
	return &lease{fence: fence, sent: now}
}

// renew extends the lease by a heartbeat that was sent at that time and
// succeeded. A lost lease stays lost, and an older heartbeat changes nothing.
func (l *lease) renew(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent.After(l.sent) && !l.lost {
		l.sent = sent
	}
}

// valid reports whether the worker may still write at now. From the first time
// that it may not, the lease is lost.
func (l *lease) valid(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.sent) >= l.fence {
		l.lost = true
	}
	return !l.lost
}
