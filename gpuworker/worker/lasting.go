package worker

import (
	"sync"
	"time"
)

// lasting remembers how long the last requests took, to judge how many of
// those in flight will end in time.
type lasting struct {
	mu   sync.Mutex
	took [128]time.Duration // a ring
	n    int                // how many were ever put in
}

func (l *lasting) observe(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took[l.n%len(l.took)] = took
	l.n++
}

// Bounds of the judgement.
const (
	enoughKnown = 2    // requests that took longer than one in flight did so far
	leastChance = 0.05 // below this it counts as one that will not end in time
)

// endsWithin reports whether a request that has gone on for so long may well
// end within the time left. What its like did decides: of the requests that
// took longer than it did so far, how many ended by then. Where too few are
// known it is taken to go on for as long again.
func (l *lasting) endsWithin(elapsed, left time.Duration) bool {
	if left <= 0 {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	longer, inTime := 0, 0
	for _, took := range l.took[:min(l.n, len(l.took))] {
		if took > elapsed {
			longer++
			if took <= elapsed+left {
				inTime++
			}
		}
	}
	if longer < enoughKnown {
		return elapsed <= left
	}
	return float64(inTime) >= leastChance*float64(longer)
}

// flights are the requests in flight of one shard.
type flights struct {
	mu    sync.Mutex
	since []time.Time // zero: not in flight
	idle  []int       // of since
}

// begin notes a request and returns its number.
func (f *flights) begin(now time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.idle); n > 0 {
		k := f.idle[n-1]
		f.idle, f.since[k] = f.idle[:n-1], now
		return k
	}
	f.since = append(f.since, now)
	return len(f.since) - 1
}

// end forgets the request and returns when it began.
func (f *flights) end(k int) (began time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	began, f.since[k] = f.since[k], time.Time{}
	f.idle = append(f.idle, k)
	return began
}

// any reports whether one of those in flight has the property, by how long it
// has gone on.
func (f *flights) any(now time.Time, is func(elapsed time.Duration) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, began := range f.since {
		if !began.IsZero() && is(now.Sub(began)) {
			return true
		}
	}
	return false
}
