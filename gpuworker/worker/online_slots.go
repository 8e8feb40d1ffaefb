package worker

import (
	"context"

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
// online request is there. A waiter for all slots, who asks an item on probation alone, is
// not overtaken once it is the first: online requests wait until it has released them.
type onlineSlots struct {
	share float64 // of the limit; 0 admits no online request
	taken int     // counted in slots.taken as well
	queue []*waiter
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
	return s.online.taken, len(s.online.queue), s.onlineLimit()
}

// acquireOnline waits for a slot of the online class. It fails with Throttled if as many
// wait already, with Unavailable if stopping is closed, and with Canceled if ctx ends.
func (s *slots) acquireOnline(ctx context.Context, stopping <-chan struct{}, maxWaiting int) error {
	s.mu.Lock()
	if len(s.online.queue) == 0 && s.tryTakeOnline() {
		s.mu.Unlock()
		return nil
	}
	if len(s.online.queue) >= maxWaiting {
		s.mu.Unlock()
		return fault.New(fault.Throttled, "%d online requests wait already", maxWaiting)
	}
	w := &waiter{admitted: make(chan struct{}, 1)}
	s.online.queue = append(s.online.queue, w)
	s.mu.Unlock()
	err := fault.New(fault.Unavailable, "the worker drains")
	select {
	case <-w.admitted:
		return nil
	case <-stopping:
	case <-ctx.Done():
		err = fault.WithKind(fault.Canceled, context.Cause(ctx), "wait for a slot")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range s.online.queue {
		if q == w {
			s.online.queue = append(s.online.queue[:i], s.online.queue[i+1:]...)
			return err
		}
	}
	s.giveBackOnline() // admitted at the same moment
	return err
}

// tryOnline takes a slot for an online request if one is free and none waits.
func (s *slots) tryOnline() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.online.queue) == 0 && s.tryTakeOnline()
}

// tryTakeOnline takes a slot for an online request if that is possible now. The caller
// holds s.mu.
func (s *slots) tryTakeOnline() bool {
	if s.all || s.taken >= s.limit || s.online.taken >= s.onlineLimit() || len(s.queue) > 0 && s.queue[0].all {
		return false
	}
	s.taken++
	s.online.taken++
	return true
}

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
}

// onlineBurst is how many online requests may begin in a row under a limit while requests of
// runs wait.
const onlineBurst = 16

func newOnlineCredit(share float64) onlineCredit {
	if share >= 1 {
		return onlineCredit{rate: onlineBurst, credit: onlineBurst}
	}
	return onlineCredit{rate: share / (1 - share), credit: onlineBurst}
}

// has reports whether an online request goes first.
func (c *onlineCredit) has() bool { return c.credit >= 1 || c.rate >= onlineBurst }

func (c *onlineCredit) spend() { c.credit = max(0, c.credit-1) }

func (c *onlineCredit) earn() { c.credit = min(onlineBurst, c.credit+c.rate) }
