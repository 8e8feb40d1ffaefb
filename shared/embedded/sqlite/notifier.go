package sqlite

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"rollout/shared/clock"
)

// pollEvery is the interval between polls of the counter of writes while waiters
// exist. A poll takes about 10 µs.
const pollEvery = 10 * time.Millisecond

// notifier wakes the receivers of messages and the watchers of documents of this
// process. The process's writer notifies it after each transaction. The writer then
// also notices commits of other processes, because they advanced the database's
// counter of writes. Between transactions the notifier polls the counter every
// pollEvery, and wakes receivers whose next message becomes visible. It polls only
// while waiters exist.
type notifier struct {
	session  *session
	clock    clock.Clock
	log      *slog.Logger
	polling  sync.Mutex // guards session
	mu       sync.Mutex // guards the fields up to wanted
	waiters  map[*waiter]struct{}
	writes   int64         // the last known counter of writes
	notified bool          // the writer has updated writes since the last poll
	wanted   chan struct{} // receives a hint when a waiter is added
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

func startNotifier(ctx context.Context, s *session, c clock.Clock, log *slog.Logger) *notifier {
	b := &notifier{
		session: s, clock: c, log: log, waiters: map[*waiter]struct{}{},
		wanted: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{}),
	}
	go b.run(ctx)
	return b
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

// expect makes the notifier wake the waiter at due.
func (b *notifier) expect(w *waiter, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.due = due
}

// notify wakes the waiters that a transaction of this process concerns. It wakes all
// waiters if other processes have written since the previous transaction.
func (b *notifier) notify(g *transaction) {
	b.mu.Lock()
	defer b.mu.Unlock()
	others := g.before > b.writes
	b.writes, b.notified = max(b.writes, g.writes), true
	for w := range b.waiters {
		if others || w.concerns(g.keys, g.queues) {
			hint(w.hints)
		}
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

// run polls while waiters exist, until the notifier is closed.
func (b *notifier) run(ctx context.Context) {
	defer close(b.ended)
	p := &poller{notifier: b}
	for {
		select {
		case <-b.wanted:
		case <-b.closing:
			return
		}
		ticker := time.NewTicker(pollEvery)
		for b.hasWaiters() {
			select {
			case <-ticker.C:
				p.once(ctx)
			case <-b.closing:
				ticker.Stop()
				return
			}
		}
		ticker.Stop()
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
	failing bool // the last poll failed and was logged
}

// once polls once. It wakes all waiters if other processes have written, else the
// receivers whose next message has become visible. If the poll fails, it wakes all
// waiters, so that their own calls meet the error and return it.
func (p *poller) once(ctx context.Context) {
	p.polling.Lock()
	defer p.polling.Unlock()
	all := !p.wasNotified() && p.othersWrote(ctx)
	now := p.clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.waiters {
		if all || !w.due.IsZero() && !w.due.After(now) {
			w.due = time.Time{}
			hint(w.hints)
		}
	}
}

// wasNotified reports whether the writer has notified the waiters since the last
// poll, which makes this poll unnecessary.
func (p *poller) wasNotified() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	notified := p.notified
	p.notified = false
	return notified
}

// othersWrote reports whether other processes have written since the last poll or
// transaction. It returns true if it cannot tell.
func (p *poller) othersWrote(ctx context.Context) bool {
	writes, _, err := p.session.number(ctx, countWrites)
	if err != nil && !p.failing {
		p.log.Warn("cannot poll the state file for writes of other processes", "path", p.session.path, "error", err)
	}
	p.failing = err != nil
	p.mu.Lock()
	defer p.mu.Unlock()
	others := err != nil || writes > p.writes
	p.writes = max(p.writes, writes)
	return others
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
