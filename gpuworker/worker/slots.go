package worker

import (
	"context"
	"sync"
	"time"

	"rollout/shared/core/identity"
	"rollout/shared/core/share"
)

// slots limits the worker's requests in flight. It is a fair semaphore: waiters are
// admitted in the order of their arrival or, while shards of several runs are held, by the
// weights of their runs. A waiter may also ask for all slots at once; those behind it wait
// until it has released them. Online requests are a class of their own: they are admitted
// before all others, but never hold more than their share of the slots (see online_slots.go).
//
//	online ─▶ one slot    first, while fewer than limit and fewer than share × limit are taken
//	wait ──▶ one slot     while fewer than limit are taken
//	     └─▶ all slots    when none is taken; excludes all others until released
//
// The limit may change at any time; slots that are taken stay taken.
//
// A held shard asks for one slot after the other. When many requests end at once, the next
// waiter of a heavy run may come only after the lighter runs have taken the free slots, so
// that all runs would get the same. While slots are scarce, a slot is therefore kept for a
// run whose turn it is and that had a slot a moment ago: see away.
type slots struct {
	now func() time.Time

	mu    sync.Mutex
	limit int
	taken int
	all   bool      // one caller has all slots
	queue []*waiter // in the order of their arrival
	spare []*waiter // for reuse

	online onlineSlots

	shared bool // shards of several runs are held
	turns  share.Turns
	away   map[identity.RunID]awayRun // runs that got a slot and have not asked for the next one
	fullAt time.Time                  // when a waiter last found all slots taken
	timer  *time.Timer                // admits others when a run stays away
}

// claimant is a run that asks for permission, with its weight at that time, or an online
// request, which belongs to no run.
type claimant struct {
	run    identity.RunID
	weight float64
	online bool
}

// awayRun is a run that is expected to ask for its next slot.
type awayRun struct {
	claimant
	until time.Time
}

// A run that got a slot is expected back for awayTime. Slots are scarce while a waiter has
// found all of them taken within scarceTime.
const (
	awayTime   = 5 * time.Millisecond
	scarceTime = time.Second
)

// waiter is a caller that waits for one slot, or for all.
type waiter struct {
	claimant
	all      bool
	admitted chan struct{} // gets one value
}

func newSlots(limit int, now func() time.Time) *slots { return &slots{now: now, limit: max(1, limit)} }

// resize sets the limit, to at least one.
func (s *slots) resize(limit int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = max(1, limit)
	s.admit()
}

// share says whether shards of several runs are held, so that weights count.
func (s *slots) share(shared bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == shared {
		return
	}
	s.shared = shared
	clear(s.away)
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
func (s *slots) acquire(ctx context.Context, stopping <-chan struct{}, c claimant, all bool) bool {
	s.mu.Lock()
	if s.tryNow(c, all) {
		s.mu.Unlock()
		return true
	}
	w := s.enqueue(c, all)
	s.admit()
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
		s.unused(c, all)
	}
	s.spare = append(s.spare, w)
	return false
}

// tryAcquire takes a slot if one is free, no request waits, and it is not the turn of
// another run.
func (s *slots) tryAcquire(c claimant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tryNow(c, false)
}

// tryNow is tryAcquire, also for all slots. The caller holds s.mu.
func (s *slots) tryNow(c claimant, all bool) bool {
	if len(s.queue) > 0 || s.shared && !all && s.awaited(c) || !s.tryTake(all) {
		return false
	}
	s.began(c, all)
	return true
}

// release gives back what acquire took.
func (s *slots) release(all bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.giveBack(all)
}

// cancel gives back a slot that acquire took, without a request in it.
func (s *slots) cancel(c claimant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unused(c, false)
}

// unused gives back what the claimant did not use: it keeps its turn. The caller holds s.mu.
func (s *slots) unused(c claimant, all bool) {
	if s.shared && !all {
		s.turns.Cancel(c.run, c.weight)
	}
	s.giveBack(all)
}

// tryTake takes a slot, or all, if that is possible now. The caller holds s.mu.
func (s *slots) tryTake(all bool) bool {
	switch {
	case s.all, all && s.taken > 0, !all && s.taken >= s.limit:
		if s.shared {
			s.fullAt = s.now()
		}
		return false
	case all:
		s.all = true
	default:
		s.taken++
		s.online.turns.earn()
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

// admit admits waiters, each in its turn, as long as there are slots.
func (s *slots) admit() {
	s.admitOnline()
	for len(s.queue) > 0 {
		i := s.next()
		if i < 0 || !s.tryTake(s.queue[i].all) {
			return
		}
		w := s.queue[i]
		s.removeWaiter(i)
		s.began(w.claimant, w.all)
		w.admitted <- struct{}{}
	}
}

// next returns the index of the waiter whose turn it is: the first or, among the runs that
// share, the one with the least start. It is -1 while a slot is kept for a run that is away.
func (s *slots) next() int {
	if !s.shared || s.queue[0].all {
		return 0
	}
	best, least := -1, 0.0
	for i, w := range s.queue {
		if w.all {
			break // those behind it wait
		}
		if start := s.turns.Start(w.run, w.weight); best < 0 || start < least {
			best, least = i, start
		}
	}
	if s.awaited(s.queue[best].claimant) {
		return -1
	}
	return best
}

// awaited reports whether a slot is kept for a run that is away and has its turn before c,
// and sets the timer that ends the wait.
func (s *slots) awaited(c claimant) bool {
	if len(s.away) == 0 || s.taken >= s.limit {
		return false
	}
	now := s.now()
	if now.Sub(s.fullAt) > scarceTime {
		return false
	}
	start := s.turns.Start(c.run, c.weight)
	for _, a := range s.away {
		left := a.until.Sub(now)
		if left <= 0 {
			delete(s.away, a.run)
			continue
		}
		if a.run != c.run && s.turns.Start(a.run, a.weight) < start {
			s.admitAfter(left)
			return true
		}
	}
	return false
}

func (s *slots) admitAfter(d time.Duration) {
	if s.timer == nil {
		s.timer = time.AfterFunc(d, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.admit()
		})
		return
	}
	s.timer.Reset(d)
}

// began counts a request of the run, which is expected to ask for the next one.
func (s *slots) began(c claimant, all bool) {
	if !s.shared || all {
		return
	}
	s.turns.Begin(c.run, c.weight)
	if s.away == nil {
		s.away = map[identity.RunID]awayRun{}
	}
	s.away[c.run] = awayRun{c, s.now().Add(awayTime)}
}

func (s *slots) enqueue(c claimant, all bool) *waiter {
	var w *waiter
	if n := len(s.spare); n > 0 {
		w, s.spare = s.spare[n-1], s.spare[:n-1]
	} else {
		w = &waiter{admitted: make(chan struct{}, 1)}
	}
	w.claimant, w.all = c, all
	s.queue = append(s.queue, w)
	delete(s.away, c.run)
	return w
}

// dequeue removes the waiter and reports whether it was still in the queue.
func (s *slots) dequeue(w *waiter) bool {
	for i, q := range s.queue {
		if q == w {
			s.removeWaiter(i)
			return true
		}
	}
	return false
}

// removeWaiter removes queue[i]. The queue is short: one waiter a held shard.
func (s *slots) removeWaiter(i int) { s.queue = append(s.queue[:i], s.queue[i+1:]...) }
