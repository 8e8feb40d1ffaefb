package worker

import (
	"context"
	"math"

	"rollout/shared/fault"
)

// onlineSlots is the class of slots for online requests. The lock of slots guards it.
//
//	arrives ──▶ waits ──▶ holds a slot ──▶ released
//	   │          └─ the wait or the client ends: leaves
//	   └─ the queue is full: refused
//
// Online requests are admitted before waiting batch requests. They hold at most share of the
// slots, and at least one; batch requests have what is left, which is everything while no
// online request is there. If that one slot is the only one, both take turns. A waiter for
// all slots, who asks an item on probation alone, is not overtaken once it is the first:
// online requests wait until it has released them.
type onlineSlots struct {
	share float64 // of the limit; 0 admits no online request
	taken int     // counted in slots.taken as well
	queue []*waiter
	turns onlineCredit // at the only slot
	// limited is how many wait for the pool's limit instead. They count as waiting.
	limited int
}

func newOnlineSlots(share float64) onlineSlots {
	o := onlineSlots{share: share}
	if 0 < share && share < 1 {
		rate := share / (1 - share)
		o.turns = onlineCredit{rate: rate, credit: 1, most: max(1, rate)}
	}
	return o
}

// onlineLimit returns how many slots online requests may hold. The caller holds s.mu.
func (s *slots) onlineLimit() int {
	if s.online.share <= 0 {
		return 0
	}
	return max(1, int(s.online.share*float64(s.limit)))
}

// onlineLoad returns how many online requests hold a slot, wait, and may hold one.
func (s *slots) onlineLoad() (taken, waiting, limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.online.taken, s.onlineWaiting(), s.onlineLimit()
}

// onlineWaiting returns how many online requests wait. The caller holds s.mu.
func (s *slots) onlineWaiting() int { return len(s.online.queue) + s.online.limited }

// errQueueFull says that as many online requests wait as may.
func errQueueFull(n int) error {
	return fault.New(fault.Throttled, "%d online requests wait already", n)
}

// acquireOnline waits for a slot of the online class, and reports whether it had to wait. It
// fails with Throttled if as many wait already, with Unavailable if stopping is closed, and
// with Canceled if ctx ends.
func (s *slots) acquireOnline(ctx context.Context, stopping <-chan struct{}, maxWaiting int) (waited bool, err error) {
	s.mu.Lock()
	if len(s.online.queue) == 0 && s.tryTakeOnline() {
		s.mu.Unlock()
		return false, nil
	}
	if s.onlineWaiting() >= maxWaiting {
		s.mu.Unlock()
		return false, errQueueFull(maxWaiting)
	}
	w := &waiter{admitted: make(chan struct{}, 1)}
	s.online.queue = append(s.online.queue, w)
	s.admit() // with one slot it may be the turn of a batch request
	s.mu.Unlock()
	err = fault.New(fault.Unavailable, "the worker drains")
	select {
	case <-w.admitted:
		return true, nil
	case <-stopping:
	case <-ctx.Done():
		err = fault.WithKind(fault.Canceled, context.Cause(ctx), "wait for a slot")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range s.online.queue {
		if q == w {
			s.online.queue = append(s.online.queue[:i], s.online.queue[i+1:]...)
			return true, err
		}
	}
	s.giveBackOnline() // admitted at the same moment
	return true, err
}

// leaveForLimit gives back the slot of an online request, which waits for the pool's limit
// instead. It fails with Throttled if as many wait already.
func (s *slots) leaveForLimit(maxWaiting int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.giveBackOnline()
	if s.onlineWaiting() >= maxWaiting {
		return errQueueFull(maxWaiting)
	}
	s.online.limited++
	return nil
}

// tryAfterLimit ends the wait for the pool's limit. If the request may begin, it takes a slot
// when one is free and none waits.
func (s *slots) tryAfterLimit(mayBegin bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.online.limited--
	return mayBegin && len(s.online.queue) == 0 && s.tryTakeOnline()
}

// tryTakeOnline takes a slot for an online request if that is possible now. The caller
// holds s.mu.
func (s *slots) tryTakeOnline() bool {
	if s.all || s.taken >= s.limit || s.online.taken >= s.onlineLimit() || len(s.queue) > 0 && s.queue[0].all {
		return false
	}
	if s.takesTurns() && len(s.queue) > 0 {
		if !s.online.turns.has() {
			return false
		}
		s.online.turns.spend()
	}
	s.taken++
	s.online.taken++
	return true
}

// takesTurns reports whether the share is all slots, although it should not be. The caller
// holds s.mu.
func (s *slots) takesTurns() bool { return s.online.share < 1 && s.onlineLimit() == s.limit }

// admitOnline admits waiting online requests as long as they may have slots. The caller
// holds s.mu.
func (s *slots) admitOnline() {
	for len(s.online.queue) > 0 && s.tryTakeOnline() {
		w := s.online.queue[0]
		s.online.queue = s.online.queue[1:]
		w.admitted <- struct{}{}
	}
}

// releaseOnline gives back what acquireOnline took.
func (s *slots) releaseOnline() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBackOnline()
}

func (s *slots) giveBackOnline() {
	s.online.taken--
	s.giveBack(false)
}

// onlineCredit divides the requests that begin under a limit of the pool between online
// requests and those of runs, while both wait: of share of all, online ones go first.
type onlineCredit struct {
	rate   float64 // what a request of a run adds
	credit float64
	most   float64 // bounds credit
}

// onlineBurst is how many online requests may begin in a row under a limit while requests of
// runs wait.
const onlineBurst = 16

func newOnlineCredit(share float64) onlineCredit {
	if share >= 1 {
		return onlineCredit{credit: math.Inf(1)}
	}
	rate := share / (1 - share)
	return onlineCredit{rate: rate, credit: onlineBurst, most: max(onlineBurst, rate)}
}

// has reports whether an online request goes first.
func (c *onlineCredit) has() bool { return c.credit >= 1 }

func (c *onlineCredit) spend() { c.credit = max(0, c.credit-1) }

func (c *onlineCredit) earn() { c.credit = max(c.credit, min(c.most, c.credit+c.rate)) }
