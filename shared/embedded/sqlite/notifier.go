package sqlite

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"rollout/shared/clock"
)

// pollEvery is how often the bell looks for other processes' writes while
// somebody waits. A look costs about 10 µs.
const pollEvery = 10 * time.Millisecond

// notifier wakes those who wait for messages or watch documents. This process's
// writer rings it after each transaction, and then knows of other processes'
// commits too: the database's counter of writes has gone on without it. While
// it writes nothing, the counter is looked at every pollEvery, but only if
// somebody waits; so are messages that get visible as time passes.
type notifier struct {
	session *session
	clock   clock.Clock
	log     *slog.Logger
	looking sync.Mutex // the session is one looker's at a time
	mu      sync.Mutex
	waiters map[*waiter]struct{}
	writes  int64         // the counter of writes, as last seen
	rung    bool          // the writer has seen it since the last look
	wanted  chan struct{} // a hint that waiters is not empty any more
	closing chan struct{} // closed to end the bell
	ended   chan struct{} // closed by it when it has
}

// waiter is one receiver at a queue, or one watcher of a prefix.
type waiter struct {
	queue   string // "" for a watcher
	prefix  string
	due     time.Time     // when the queue's next message gets visible; zero if none
	hints   chan struct{} // of capacity one
	watched bool
}

func startNotifier(ctx context.Context, s *session, c clock.Clock, log *slog.Logger) *notifier {
	b := &notifier{session: s, clock: c, log: log, waiters: map[*waiter]struct{}{},
		wanted: make(chan struct{}, 1), closing: make(chan struct{}), ended: make(chan struct{})}
	go b.run(ctx)
	return b
}

// watch registers a watcher until ctx ends or the bell is closed.
func (b *notifier) watch(ctx context.Context, prefix string) <-chan struct{} {
	w := &waiter{prefix: prefix, hints: make(chan struct{}, 1), watched: true}
	b.add(w)
	context.AfterFunc(ctx, func() { b.remove(w) })
	return w.hints
}

// wait registers a receiver, which must be removed.
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

// remove forgets a waiter, once, and closes a watcher's channel.
func (b *notifier) remove(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.forget(w)
}

func (b *notifier) forget(w *waiter) {
	if _, ok := b.waiters[w]; !ok {
		return
	}
	delete(b.waiters, w)
	if w.watched {
		close(w.hints)
	}
}

// expect has the waiter woken at due.
func (b *notifier) expect(w *waiter, due time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.due = due
}

// notify wakes those whom a transaction of this process concerns, and everybody
// if others have written since the one before.
func (b *notifier) notify(g *transaction) {
	b.mu.Lock()
	defer b.mu.Unlock()
	others := g.before > b.writes
	b.writes, b.rung = max(b.writes, g.writes), true
	for w := range b.waiters {
		if others || w.concerns(g.keys, g.queues) {
			hint(w.hints)
		}
	}
}

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

func (b *notifier) run(ctx context.Context) {
	defer close(b.ended)
	look := &poller{notifier: b}
	for {
		select {
		case <-b.wanted:
		case <-b.closing:
			return
		}
		ticker := time.NewTicker(pollEvery)
		for b.anybody() {
			select {
			case <-ticker.C:
				look.once(ctx)
			case <-b.closing:
				ticker.Stop()
				return
			}
		}
		ticker.Stop()
	}
}

func (b *notifier) anybody() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiters) > 0
}

// poller is the part of the bell that belongs to its goroutine.
type poller struct {
	*notifier
	failing bool // the last look failed; it has been logged
}

// once wakes everybody if other processes have written, and receivers whose
// next message has got visible. If it can't look, it wakes everybody: they
// will meet the error themselves, and can return it.
func (l *poller) once(ctx context.Context) {
	l.looking.Lock()
	defer l.looking.Unlock()
	all := !l.wasNotified() && l.othersWrote(ctx)
	now := l.clock.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for w := range l.waiters {
		if all || !w.due.IsZero() && !w.due.After(now) {
			w.due = time.Time{}
			hint(w.hints)
		}
	}
}

// wasNotified reports whether the writer did this look's work.
func (l *poller) wasNotified() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	rung := l.rung
	l.rung = false
	return rung
}

func (l *poller) othersWrote(ctx context.Context) bool {
	writes, _, err := l.session.number(ctx, countWrites)
	if err != nil && !l.failing {
		l.log.Warn("state file can't be polled for other processes' writes", "path", l.session.path, "error", err)
	}
	l.failing = err != nil
	l.mu.Lock()
	defer l.mu.Unlock()
	others := err != nil || writes > l.writes
	l.writes = max(l.writes, writes)
	return others
}

// close ends the bell and all watches.
func (b *notifier) close() error {
	close(b.closing)
	<-b.ended
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.waiters {
		b.forget(w)
	}
	return b.session.close()
}

func hint(hints chan<- struct{}) {
	select {
	case hints <- struct{}{}:
	default:
	}
}
