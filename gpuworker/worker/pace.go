package worker

import (
	"sync"
	"time"
)

// pace measures how fast the engine takes items and how long a claim takes, so
// that enough shards are claimed ahead to keep the engine full meanwhile, and
// no more.
type pace struct {
	mu      sync.Mutex
	begun   int       // items begun since `since`
	since   time.Time // zero before the first item
	rate    float64   // items a second
	latency float64   // seconds from asking for work to having its lines
}

// Weights of the newest measurement.
const (
	rateWeight    = 0.5
	latencyWeight = 0.2
	rateWindow    = 100 * time.Millisecond
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

// claimed takes in how long a claim took.
func (p *pace) claimed(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency += latencyWeight * (d.Seconds() - p.latency)
}

// horizon is the least time, in seconds, for which work is claimed ahead: so
// little that others do not miss it, and yet enough that fast engines' claims
// come several at once, which then share a write, and that an engine does not
// run dry while a disk is busy with somebody's sync.
const horizon = 0.15

// ahead is how many items the engine begins while a claim is made; twice that,
// as claims come in bursts.
func (p *pace) ahead() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return int(p.rate * max(2*p.latency, horizon))
}
