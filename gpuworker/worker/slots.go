package worker

import (
	"context"
	"sync"
)

// slots limits the worker's requests in flight. It is a fair semaphore: waiters
// are admitted in the order of their arrival. A waiter may also ask for all
// slots at once; those behind it wait until it has released them.
//
//	wait ──▶ one slot     while fewer than limit are taken
//	     └─▶ all slots    when none is taken; excludes all others until released
//
// The limit may change at any time; slots that are taken stay taken.
type slots struct {
	mu    sync.Mutex
	limit int
	taken int
	all   bool // one caller has all slots
	queue []*waiter
	spare []*waiter // for reuse
}

// waiter is a caller that waits for one slot, or for all.
type waiter struct {
	all      bool
	admitted chan struct{} // gets one value
}

func newSlots(limit int) *slots { return &slots{limit: max(1, limit)} }

// resize sets the limit, to at least one.
func (s *slots) resize(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = max(1, limit)
	s.admit()
}

// size returns the limit.
func (s *slots) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.limit
}

// busy returns how many slots are taken. All slots of one caller count as one.
func (s *slots) busy() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all {
		return 1
	}
	return s.taken
}

// acquire waits for a slot, or for all. It returns false if stopping was closed
// or ctx ended first.
func (s *slots) acquire(ctx context.Context, stopping <-chan struct{}, all bool) bool {
	s.mu.Lock()
	if len(s.queue) == 0 && s.tryTake(all) {
		s.mu.Unlock()
		return true
	}
	w := s.enqueue(all)
	s.mu.Unlock()
	select {
	case <-w.admitted:
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
		s.admit() // it may have blocked those behind it
	} else { // admitted at the same moment
		<-w.admitted
		s.giveBack(all)
	}
	s.spare = append(s.spare, w)
	return false
}

// tryAcquire takes a slot if one is free and no request waits.
func (s *slots) tryAcquire() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue) == 0 && s.tryTake(false)
}

// release gives back what acquire took.
func (s *slots) release(all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBack(all)
}

// tryTake takes a slot, or all, if that is possible now. The caller holds s.mu.
func (s *slots) tryTake(all bool) bool {
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

func (s *slots) giveBack(all bool) {
	if all {
		s.all = false
	} else {
		s.taken--
	}
	s.admit()
}

// admit admits waiters from the head of the queue, as long as there are slots.
func (s *slots) admit() {
	n := 0
	for n < len(s.queue) && s.tryTake(s.queue[n].all) {
		s.queue[n].admitted <- struct{}{}
		n++
	}
	s.removeWaiters(0, n)
}

func (s *slots) enqueue(all bool) *waiter {
	var w *waiter
	if n := len(s.spare); n > 0 {
		w, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		w = &waiter{admitted: make(chan struct{}, 1)}
	}
	w.all = all
	s.queue = append(s.queue, w)
	return w
}

// dequeue removes the waiter and reports whether it was still in the queue.
func (s *slots) dequeue(w *waiter) bool {
	for i, q := range s.queue {
		if q == w {
			s.removeWaiters(i, i+1)
			return true
		}
	}
	return false
}

// removeWaiters removes queue[i:j]. The queue is short: one waiter a held shard.
func (s *slots) removeWaiters(i, j int) { s.queue = append(s.queue[:i], s.queue[j:]...) }
