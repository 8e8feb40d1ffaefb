package balancer

import "time"

// State is what the fleet thinks of a server.
//
//	         trouble             the question fails, or nobody is there
//	Closed ──────────▶ Doubted ─────────────────────────────────▶ Open ◀─────┐
//	  ▲ ▲                 │                                        │ wait     │ fails:
//	  │ └─────────────────┘ it answers the question                ▼          │ wait × 2
//	  └────────────────────────────────────────────────────────── HalfOpen ───┘
//	                        it answers the question
//
// Trouble is a connection refused or broken, a 5xx, or a request that hung. It
// may be the request's own: so the server is asked a small question, which no
// user's item pays for. Who answers it works, and what failed is the request's
// fault; who does not fails for everybody, and no request is blamed. While it
// is asked, others are preferred; while it is Open or HalfOpen, it gets no
// request at all.
type State string

// The states.
const (
	Closed   State = "closed"
	Probing  State = "doubted"
	Open     State = "open"
	HalfOpen State = "half_open"
)

// Waits of an open breaker between questions.
const (
	firstWait = 100 * time.Millisecond
	lastWait  = 2 * time.Second
)

// breaker is one server's.
type breaker struct {
	state State
	wait  time.Duration // before the next question, when Open
}

func newBreaker() breaker { return breaker{state: Closed, wait: firstWait} }

// trouble takes in a fault; true if the server must be asked now.
func (b *breaker) trouble() bool {
	if b.state != Closed {
		return false
	}
	b.state = Probing
	return true
}

// waited says that an open breaker's wait is over.
func (b *breaker) waited() {
	if b.state == Open {
		b.state = HalfOpen
	}
}

// answered takes in how the question ended.
func (b *breaker) answered(works bool) {
	switch {
	case works:
		*b = newBreaker()
	case b.state == HalfOpen:
		b.state, b.wait = Open, min(2*b.wait, lastWait)
	default:
		b.state = Open
	}
}

// away reports whether the server may get no request.
func (b *breaker) away() bool { return b.state == Open || b.state == HalfOpen }
