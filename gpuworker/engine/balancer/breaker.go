package balancer

import "time"

// State is the state of a server's circuit breaker.
//
//	       failure       the probe fails
//	Closed ─────▶ Probing ─────────▶ Open ◀──┐
//	  ▲ ▲            │                │ wait │ the probe fails: wait × 2
//	  │ └────────────┘ it succeeds    ▼      │
//	  └────────────────────────── HalfOpen ──┘
//	              it succeeds
//
// A failure is a ServerError or a request that hung. It may be the fault of one
// request, or of the server. A probe decides: a small question that belongs to no
// user's item. If the server answers it, the failure is the request's. If not, the
// server fails for all requests, and no request is charged. While a server is
// Probing, others are preferred. While it is Open or HalfOpen, it is set aside and
// gets no requests.
type State string

// The states.
const (
	Closed   State = "closed"
	Probing  State = "doubted"
	Open     State = "open"
	HalfOpen State = "half_open"
)

// Waits of an open breaker between probes.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 2 * time.Second
)

// breaker is the circuit breaker of one server. The Balancer's mutex guards it.
type breaker struct {
	state State
	wait  time.Duration // before the next probe, when Open
}

func newBreaker() breaker { return breaker{state: Closed, wait: firstWait} }

// failed records a failure and reports whether the server must be probed.
func (b *breaker) failed() bool {
	if b.state != Closed {
		return false
	}
	b.state = Probing
	return true
}

// waited says that the wait of an open breaker is over.
func (b *breaker) waited() {
	if b.state == Open {
		b.state = HalfOpen
	}
}

// probed records the result of a probe.
func (b *breaker) probed(ok bool) {
	switch {
	case ok:
		*b = newBreaker()
	case b.state == HalfOpen:
		b.state, b.wait = Open, min(2*b.wait, lastWait)
	default:
		b.state = Open
	}
}

// setAside reports whether the server gets no requests.
func (b *breaker) setAside() bool { return b.state == Open || b.state == HalfOpen }
