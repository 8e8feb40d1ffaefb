package sqlite

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"rollout/shared/clock"
)

// Intervals between polls of the counter of writes while waiters exist. A poll takes about
// 10 µs, and waking a process that sleeps as much again.
const (
	// pollEvery is the shortest interval, and the only one while the bell does not ring for
	// what others write.
	pollEvery = 10 * time.Millisecond
	// idlePoll is the interval while the bell rings: for processes that do not ring it.
	idlePoll = 1700 * time.Millisecond
	// deafFor is how long the notifier polls at pollEvery after writes that no ring announced.
	deafFor = 30 * time.Second
	// deafAfter is how often such writes are found without a ring of another process between:
	// a single one may have been faster than its ring.
	deafAfter = 2
)

// notifier wakes the receivers of messages and the watchers of documents of this
// process. The process's writer notifies it after each transaction. The writer then
// also notices commits of other processes, because they advanced the database's
// counter of writes. Between transactions the notifier polls the counter when the bell
// rings, and else rarely, and wakes receivers whose next message becomes visible. It polls
// only while waiters exist.
type notifier struct {
	session  *session
	rings    <-chan struct{}                                            // of the bell; nil without one
	count    func(context.Context) (int64, error)                       // reads the counter of writes
	next     func(ctx context.Context, queue string) (time.Time, error) // when the next message is visible; zero without
	clock    clock.Clock
	log      *slog.Logger
	polling  sync.Mutex // guards session
	mu       sync.Mutex // guards the fields before wanted
	waiters  map[*waiter]struct{}
	writes   int64         // the last known counter of writes
	notified bool          // the writer has updated writes since the last poll
	missed   int           // times that writes of others were found since the last ring of another process
	deaf     time.Time     // until then it polls often: the bell did not ring for writes
	wanted   chan struct{} // receives a hint when a waiter is added, or expects a message
	closing  chan struct{} // closed to end run
	ended    chan struct{} // closed when run has ended
}

// waiter is one receiver of a queue's messages, or one watcher of a key prefix.
type waiter struct {
	queue   string // "" for a watcher
	prefix  string
	due     time.Time     // when the queue's next message becomes visible; zero if unknown
	hints   chan struct{} // has capacity 1
	watched bool
}

func startNotifier(ctx context.Context, s *session, rings <-chan struct{}, c clock.Clock, log *slog.Logger) *notifier {
	b := newNotifier(rings, c, log)
	b.session = s
	b.count = func(ctx context.Context) (int64, error) {
		writes, _, err := s.number(ctx, countWrites)
		return writes, err
	}
	b.next = func(ctx context.Context, queue string) (time.Time, error) {
		nanos, exists, err := s.number(ctx, nextMessage, queue)
		if err != nil || !exists {
			return time.Time{}, err
		}
		return time.Unix(0, nanos), nil
	}
	go b.run(ctx)
	return b
}

func newNotifier(rings <-chan struct{}, c clock.Clock, log *slog.Logger) *notifier {
	return &notifier{
		rings: rings, clock: c, log: log, waiters: map[*waiter]struct{}{},
		wanted: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}),
	}
}

// watch registers a watcher until ctx ends or the notifier is closed.
func (b *notifier) watch(ctx context.Context, prefix string) <-chan struct{} {
	w := &waiter{prefix: prefix, hints: make(chan struct{}, 1), watched: true}
	b.add(w)
	context.AfterFunc(ctx, func() { b.remove(w) })
	return w.hints
}

// wait registers a receiver. The caller must remove it.
func (b *notifier) wait(queue string) *waiter {
	w := &waiter{queue: queue, hints: make(chan struct{}, 1)}
	b.add(w)
	return w
}

func (b *notifier) add(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiters[w] = struct{}{}
	hint(b.wanted)
}

// remove removes a waiter and closes a watcher's channel. It may be called again.
func (b *notifier) remove(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.removeLocked(w)
}

func (b *notifier) removeLocked(w *waiter) {
	if _, ok := b.waiters[w]; !ok {
		return
	}
	delete(b.waiters, w)
	if w.watched {
		close(w.hints)
	}
}

// expect makes the notifier wake the waiter at due, unless it expects an earlier message.
func (b *notifier) expect(w *waiter, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.expect(due) {
		hint(b.wanted)
	}
}

// expect notes that a message becomes visible at due, and reports whether that is news. The
// zero time is none: what a reader found empty may have been filled since. The caller holds
// the notifier's mu.
func (w *waiter) expect(due time.Time) bool {
	if due.IsZero() || !w.due.IsZero() && !due.Before(w.due) {
		return false
	}
	w.due = due
	return true
}

// notify wakes the waiters that a transaction of this process concerns. It wakes all
// waiters if other processes have written since the previous transaction.
func (b *notifier) notify(g *transaction) {
	b.mu.Lock()
	defer b.mu.Unlock()
	others := g.before > b.writes
	b.writes, b.notified = max(b.writes, g.writes), true
	if others {
		b.miss(b.clock.Now())
	}
	for w := range b.waiters {
		if others || w.concerns(g.keys, g.queues) {
			hint(w.hints)
		}
	}
}

// miss notes that writes of others were found before a ring announced them. The caller holds mu.
func (b *notifier) miss(now time.Time) {
	if b.missed++; b.missed >= deafAfter {
		b.deaf = now.Add(deafFor)
		hint(b.wanted)
	}
}

// concerns reports whether changed documents or filled queues concern the waiter.
func (w *waiter) concerns(keys, queues []string) bool {
	for _, queue := range queues {
		if queue == w.queue {
			return true
		}
	}
	for _, key := range keys {
		if w.watched && strings.HasPrefix(key, w.prefix) {
			return true
		}
	}
	return false
}

// run polls while waiters exist, until the notifier is closed: at once after a ring, but no
// sooner than pollEvery after the last poll.
func (b *notifier) run(ctx context.Context) {
	defer close(b.ended)
	p := &poller{notifier: b}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		rung := false
		timer.Stop()
		if wait, ok := p.wait(); ok {
			timer.Reset(wait)
		}
		select {
		case <-b.closing:
			return
		case <-b.wanted: // wait again, with what is wanted now
			continue
		case <-timer.C:
		case <-b.rings:
			rung = true
			if rest := pollEvery - time.Since(p.last); rest > 0 && !p.sleep(rest) {
				return
			}
		}
		if b.hasWaiters() {
			p.once(ctx, rung)
			p.last = time.Now()
		}
	}
}

// sleep waits. It returns false if the notifier is closed meanwhile.
func (b *notifier) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-b.closing:
		return false
	}
}

func (b *notifier) hasWaiters() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiters) > 0
}

// poller is the state of the notifier's goroutine.
type poller struct {
	*notifier
	last    time.Time // of the last poll
	failing bool      // the last poll failed and was logged
}

// wait returns after which time to poll though nothing rings; false without waiters. It is
// the time until the first expected message is visible, at most the poll's interval.
func (p *poller) wait() (time.Duration, bool) {
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.waiters) == 0 {
		return 0, false
	}
	wait := idlePoll
	if p.rings == nil || now.Before(p.deaf) {
		wait = pollEvery
	}
	wait = max(0, wait-time.Since(p.last))
	for w := range p.waiters {
		if !w.due.IsZero() {
			wait = min(wait, max(0, w.due.Sub(now)))
		}
	}
	return wait, true
}

// once polls once. If other processes have written, it wakes the watchers, and looks when
// the next message of each queue with a receiver is visible: most writes of others are
// heartbeats, and fill no queue. It then wakes the receivers whose next message is visible. If the
// poll fails, it wakes all waiters, so that their own calls meet the error and return it.
// rung says that the bell announced a write.
func (p *poller) once(ctx context.Context, rung bool) {
	p.polling.Lock()
	defer p.polling.Unlock()
	others, err := false, error(nil)
	var next map[string]time.Time
	notified := p.wasNotified()
	if rung || !notified { // the ring may be another process's, although this one has written
		if others, err = p.othersWrote(ctx); others && err == nil {
			next, err = p.nextMessages(ctx)
		}
	}
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case rung && !notified: // another process's ring: this one's come after its notices
		p.missed = 0
	case others && !rung:
		p.miss(now)
	}
	for w := range p.waiters {
		due, looked := next[w.queue]
		w.expect(due)
		if err != nil || others && (w.watched || !looked) || !w.due.IsZero() && !w.due.After(now) {
			w.due = time.Time{}
			hint(w.hints)
		}
	}
}

// nextMessages returns when the next message of each queue with a receiver is visible; the
// zero time for an empty queue.
func (p *poller) nextMessages(ctx context.Context) (map[string]time.Time, error) {
	next := map[string]time.Time{}
	p.mu.Lock()
	for w := range p.waiters {
		if !w.watched {
			next[w.queue] = time.Time{}
		}
	}
	p.mu.Unlock()
	for queue := range next {
		due, err := p.next(ctx, queue)
		if err != nil {
			return nil, err
		}
		next[queue] = due
	}
	return next, nil
}

// wasNotified reports whether the writer has notified the waiters since the last
// poll, which makes this poll unnecessary unless the bell rang.
func (p *poller) wasNotified() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	notified := p.notified
	p.notified = false
	return notified
}

// othersWrote reports whether other processes have written since the last poll or
// transaction.
func (p *poller) othersWrote(ctx context.Context) (bool, error) {
	writes, err := p.count(ctx)
	if err != nil && !p.failing {
		p.log.Warn("cannot poll the state file for writes of other processes", "error", err)
	}
	p.failing = err != nil
	p.mu.Lock()
	defer p.mu.Unlock()
	others := writes > p.writes
	p.writes = max(p.writes, writes)
	return others, err
}

// close ends the notifier and all watches.
func (b *notifier) close() error {
	close(b.closing)
	<-b.ended
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.waiters {
		b.removeLocked(w)
	}
	return b.session.close()
}

// hint sends without blocking: one unread hint suffices.
func hint(hints chan<- struct{}) {
	select {
	case hints <- struct{}{}:
	default:
	}
}
