package worker

import (
	"sync"
	"time"
)

// Parameters of endsWithin.
const (
	minKnown  = 2    // requests known to have taken longer than the one in flight so far
	minChance = 0.05 // share of them that ended in time; below, the request counts as too long
)

// endsWithin estimates whether a request that has been in flight for elapsed may
// well end within left, by the durations of other requests: of those that took
// longer than elapsed, it takes the share that ended by elapsed+left. If too few
// are known, it assumes that the request takes as long again.
func endsWithin(durations []time.Duration, elapsed, left time.Duration) bool {
	if left <= 0 {
		return false
	}
	longer, inTime := 0, 0
	for _, took := range durations {
		if took > elapsed {
			longer++
			if took <= elapsed+left {
				inTime++
			}
		}
	}
	if longer < minKnown {
		return elapsed <= left
	}
	return float64(inTime) >= minChance*float64(longer)
}

// inFlight records when the requests in flight of one shard began. It is safe
// for concurrent use.
type inFlight struct {
	mu    sync.Mutex
	since []time.Time // by number; zero: not in flight
	free  []int       // numbers to use again
}

// begin records a request and returns its number.
func (f *inFlight) begin(now time.Time) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.free); n > 0 {
		k := f.free[n-1]
		f.free, f.since[k] = f.free[:n-1], now
		return k
	}
	f.since = append(f.since, now)
	return len(f.since) - 1
}

// end removes the request.
func (f *inFlight) end(k int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since[k] = time.Time{}
	f.free = append(f.free, k)
}

// count returns how many requests are in flight.
func (f *inFlight) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.since) - len(f.free)
}

// any reports whether match is true for the age of a request in flight.
func (f *inFlight) any(now time.Time, match func(elapsed time.Duration) bool) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, began := range f.since {
		if !began.IsZero() && match(now.Sub(began)) {
			return true
		}
	}
	return false
}
