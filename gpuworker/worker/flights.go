package worker

import (
	"sync"
	"time"
)

// Bounds of the judgement.
const (
	enoughKnown = 2    // requests that took longer than one in flight did so far
	leastChance = 0.05 // below this it counts as one that will not end in time
)

// endsWithin reports whether a request that has gone on for so long may well
// end within the time left, by how long others took: of those that took longer
// than it did so far, how many ended by then. Where too few are known it is
// taken to go on for as long again.
func endsWithin(others []time.Duration, elapsed, left time.Duration) bool {
	if left <= 0 {
		return false
	}
	longer, inTime := 0, 0
	for _, took := range others {
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

// end forgets the request.
func (f *flights) end(k int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since[k] = time.Time{}
	f.idle = append(f.idle, k)
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
