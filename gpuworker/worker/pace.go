package worker

import (
	"sync"
	"time"
)

// pace measures how fast the engine begins items and how long a claim takes, so
// that just enough shards are claimed ahead to keep the engine full. It is safe
// for concurrent use.
type pace struct {
	mu      sync.Mutex
	begun   int       // items begun in the current window
	since   time.Time // start of the window; zero before the first item
	rate    float64   // items a second
	latency float64   // seconds from receiving a message to having the shard's lines
}

// The window of the rate, and the weights of the newest measurement in the
// moving averages.
const (
	rateWindow    = 100 * time.Millisecond
	rateWeight    = 0.5
	latencyWeight = 0.2
)

// began counts an item.
func (p *pace) began(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since.IsZero() {
		p.since = now
	}
	p.begun++
	if d := now.Sub(p.since); d >= rateWindow {
		p.rate += rateWeight * (float64(p.begun)/d.Seconds() - p.rate)
		p.begun, p.since = 0, now
	}
}

// claimed adds the duration of a claim.
func (p *pace) claimed(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency += latencyWeight * (d.Seconds() - p.latency)
}

// horizon is the least time, in seconds, for which work is claimed ahead. It is
// short enough to leave work to other workers. It is long enough that a fast
// engine's claims come several at once and share a write, and that the engine
// does not run dry while a disk syncs.
const horizon = 0.15

// perSecond returns how many items the engine begins in a second.
func (p *pace) perSecond() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rate
}

// ahead returns how many items the engine begins in the time of two claims (they
// come in bursts), or within the horizon if that is longer.
func (p *pace) ahead() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.rate * max(2*p.latency, horizon))
}
