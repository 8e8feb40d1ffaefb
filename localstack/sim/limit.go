package sim

import (
	"slices"
	"sync"
	"time"

	"rollout/shared/core/ratelimit"
)

// limit is the world's limit on what its workers ask the engine in a minute, and what they
// asked. It is safe for concurrent use.
type limit struct {
	ratelimit.Amount // zero: no limit

	mu       sync.Mutex
	requests []begun
	ended    map[string]time.Time // when a worker ended without giving its share back
}

// begun is a request that began.
type begun struct {
	worker string
	at     time.Time
}

// drawLimit draws the limit of a fifth of all worlds.
func (w *world) drawLimit() (l ratelimit.Amount) {
	if w.rand.intN("limited", 5) > 0 {
		return l
	}
	l.Requests = int64(20 + w.rand.intN("limit requests", 1000))
	if w.rand.intN("limit tokens too", 2) == 0 {
		l.Tokens = int64(2_000 + w.rand.intN("limit tokens", 200_000))
	}
	return l
}

// record notes that the worker asks the engine now.
func (l *limit) record(worker string) {
	if l.IsZero() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests = append(l.requests, begun{worker, time.Now()})
}

// end notes that the worker ends now, if it did not end in order.
func (l *limit) end(worker string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended == nil {
		l.ended = map[string]time.Time{}
	}
	l.ended[worker] = time.Now()
}

// checkLimit checks that no minute exceeds the limit. What a worker asked before it
// crashed may come on top, since its share came back without its word.
func (w *world) checkLimit() {
	l := &w.limit
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.IsZero() {
		return
	}
	first := 0
	for i, b := range l.requests {
		for b.at.Sub(l.requests[first].at) >= time.Minute {
			first++
		}
		minute := l.requests[first : i+1]
		if int64(len(minute)) <= l.Requests {
			continue
		}
		minute = slices.DeleteFunc(slices.Clone(minute), func(x begun) bool {
			end, ok := l.ended[x.worker]
			return ok && end.Before(b.at)
		})
		if int64(len(minute)) > l.Requests {
			w.audit.breakf("%d requests began within the minute before %s, %d are allowed",
				len(minute), b.at.Sub(w.startedAt), l.Requests)
			return
		}
	}
}
