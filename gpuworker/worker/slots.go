package worker

import (
	"context"
	"sync"
)

// slots are the worker's places for requests. Who waits gets one in the order
// of coming, also who wants them all: nobody gets in before him meanwhile.
//
//	wait ──▶ one place    while fewer than limit are taken
//	     └─▶ all places   when none is taken; nobody else has one until he leaves
//
// The limit may change at any time; places that are taken stay taken.
type slots struct {
	mu    sync.Mutex
	limit int
	taken int
	all   bool // somebody has them all
	queue []*waiter
	spare []*waiter // to be used again
}

// waiter is who waits for a place, or for all of them.
type waiter struct {
	all bool
	in  chan struct{} // gets one value when he is let in
}

func newSlots(limit int) *slots { return &slots{limit: max(1, limit)} }

// resize changes how many places there are; at least one.
func (s *slots) resize(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = max(1, limit)
	s.admit()
}

// size is how many places there are.
func (s *slots) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

// busy is how many places are taken; all of them count as one.
func (s *slots) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all {
		return 1
	}
	return s.taken
}

// take waits for a place, or for all; false if stopping or ctx came first.
func (s *slots) take(ctx context.Context, stopping <-chan struct{}, all bool) bool {
	s.mu.Lock()
	if len(s.queue) == 0 && s.enter(all) {
		s.mu.Unlock()
		return true
	}
	w := s.enqueue(all)
	s.mu.Unlock()
	select {
	case <-w.in:
		s.mu.Lock()
		s.spare = append(s.spare, w)
		s.mu.Unlock()
		return true
	case <-stopping:
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dequeue(w) {
		s.admit() // he may have been in the way of others
	} else { // let in at the same moment
		<-w.in
		s.exit(all)
	}
	s.spare = append(s.spare, w)
	return false
}

// leave gives back what take gave.
func (s *slots) leave(all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.exit(all)
}

// enter takes a place, or all, if they can be had now.
func (s *slots) enter(all bool) bool {
	switch {
	case s.all, all && s.taken > 0, !all && s.taken >= s.limit:
		return false
	case all:
		s.all = true
	default:
		s.taken++
	}
	return true
}

func (s *slots) exit(all bool) {
	if all {
		s.all = false
	} else {
		s.taken--
	}
	s.admit()
}

// admit lets in who is first in the queue, as long as there are places.
func (s *slots) admit() {
	n := 0
	for n < len(s.queue) && s.enter(s.queue[n].all) {
		s.queue[n].in <- struct{}{}
		n++
	}
	s.cut(0, n)
}

func (s *slots) enqueue(all bool) *waiter {
	var w *waiter
	if n := len(s.spare); n > 0 {
		w, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		w = &waiter{in: make(chan struct{}, 1)}
	}
	w.all = all
	s.queue = append(s.queue, w)
	return w
}

// dequeue reports whether the waiter still was in the queue.
func (s *slots) dequeue(w *waiter) bool {
	for i, q := range s.queue {
		if q == w {
			s.cut(i, i+1)
			return true
		}
	}
	return false
}

// cut removes waiters; the queue is short: one a shard in hand.
func (s *slots) cut(i, j int) { s.queue = append(s.queue[:i], s.queue[j:]...) }
