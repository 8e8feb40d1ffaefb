package sqlite

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"modernc.org/sqlite"

	"rollout/shared/fault"
)

// Limits of one group of writes.
const (
	groupChanges = 512
	groupBytes   = 8 << 20
)

// writer is the goroutine of a State that writes. It combines the changes of all
// callers, to documents and to queues, into groups (group commit): each group takes
// one lock, one transaction and one sync.
type writer struct {
	session  *session
	lock     *fileLock
	notifier *notifier
	bell     *bell
	changes  chan *change
	next     *change         // did not fit into the last group
	closing  context.Context // ends when the writer must end
	end      context.CancelFunc
	ended    chan struct{} // closed when run has ended
	commits  atomic.Int64  // transactions that wrote something
	hooks    commitHooks
}

// commitHooks let a test stop a process between two steps of a commit.
type commitHooks struct{ beforeCommit, afterCommit func() }

// change is one caller's part of a group. apply must return an error that is not of
// the database only if it has changed nothing.
type change struct {
	ctx   context.Context // the caller's
	size  int             // approximate bytes written
	apply func(context.Context, *transaction) error
	err   error
	done  chan struct{} // closed after err is set
}

// transaction is the open transaction of a group.
type transaction struct {
	*session
	before int64    // the database's counter of writes when the transaction began
	writes int64    // the current counter
	keys   []string // of changed documents
	queues []string // with messages that are or become visible
}

// wrote counts a write of a document.
func (g *transaction) wrote(key string) {
	g.writes++
	g.keys = append(g.keys, key)
}

// filled counts a write after which the queue has a message to receive.
func (g *transaction) filled(queue string) {
	g.writes++
	if !slices.Contains(g.queues, queue) {
		g.queues = append(g.queues, queue)
	}
}

func startWriter(ctx context.Context, s *session, lock *fileLock, n *notifier, b *bell) *writer {
	w := &writer{
		session: s, lock: lock, notifier: n, bell: b,
		changes: make(chan *change, groupChanges), ended: make(chan struct{}),
	}
	w.closing, w.end = context.WithCancel(ctx)
	go w.run(ctx)
	return w
}

// do hands a change to the writer and waits until it is durable or refused.
func (w *writer) do(ctx context.Context, c *change) error {
	if ctx.Err() != nil {
		return w.gaveUp(ctx)
	}
	select {
	case w.changes <- c:
	case <-w.closing.Done():
		return w.closed()
	case <-ctx.Done():
		return w.gaveUp(ctx)
	}
	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return w.gaveUp(ctx)
	case <-w.ended:
	}
	select {
	case <-c.done:
		return c.err
	default:
		return w.closed()
	}
}

func (w *writer) gaveUp(ctx context.Context) error {
	return fault.WithKind(fault.Canceled, context.Cause(ctx), "write %s (it may still be applied)", w.session.path)
}

func (w *writer) closed() error {
	return fault.New(fault.Canceled, "write %s: the state was closed", w.session.path)
}

func (w *writer) run(ctx context.Context) {
	defer close(w.ended)
	for {
		if w.closing.Err() != nil {
			return
		}
		if w.next == nil {
			select {
			case w.next = <-w.changes:
			case <-w.closing.Done():
				return
			}
		}
		w.commitGroup(ctx)
	}
}

// commitGroup commits one group. It gathers the group only after it has the lock, so
// that the group includes the changes that arrived during the wait.
func (w *writer) commitGroup(ctx context.Context) {
	lockErr := w.lock.lock(w.closing, lockTimeout)
	members := w.gather()
	if lockErr != nil {
		settle(members, lockErr)
		return
	}
	g, err := w.transact(ctx, members)
	wrote := err == nil && g.writes != g.before
	err = errors.Join(err, w.lock.unlock())
	if err == nil {
		w.notifier.notify(g)
	}
	if wrote {
		w.bell.ring() // after the notice, by which the notifier knows it for an own one
	}
	settle(members, err)
}

// gather returns the pending changes, up to the limits of a group.
func (w *writer) gather() []*change {
	members := []*change{w.next}
	size := w.next.size
	w.next = nil
	for len(members) < groupChanges {
		select {
		case c := <-w.changes:
			if size += c.size; size > groupBytes {
				w.next = c
				return members
			}
			members = append(members, c)
		default:
			return members
		}
	}
	return members
}

// transact applies the members whose callers still wait in one transaction. Its error
// applies to all members; an error of one member is stored in that member.
func (w *writer) transact(ctx context.Context, members []*change) (*transaction, error) {
	if _, err := w.session.exec(ctx, `BEGIN IMMEDIATE`); err != nil {
		return nil, err
	}
	g, err := w.apply(ctx, members)
	if err == nil && w.hooks.beforeCommit != nil {
		w.hooks.beforeCommit()
	}
	if err == nil {
		_, err = w.session.exec(ctx, `COMMIT`)
	}
	if err != nil {
		w.rollback(ctx)
		return nil, err
	}
	if g.writes != g.before {
		w.commits.Add(1)
	}
	if w.hooks.afterCommit != nil {
		w.hooks.afterCommit()
	}
	return g, nil
}

// apply applies the members and updates the counter of writes.
func (w *writer) apply(ctx context.Context, members []*change) (*transaction, error) {
	writes, _, err := w.session.number(ctx, countWrites)
	if err != nil {
		return nil, err
	}
	g := &transaction{session: w.session, before: writes, writes: writes}
	for _, c := range members {
		if c.ctx.Err() != nil {
			c.err = w.gaveUp(c.ctx)
			continue
		}
		if c.err = c.apply(ctx, g); isDatabaseError(c.err) {
			return nil, c.err
		}
	}
	if g.writes != g.before {
		_, err = w.session.exec(ctx, `UPDATE counter SET writes = ?`, g.writes)
	}
	return g, err
}

// rollback ends the transaction, unless SQLite did so itself. It ignores errors: the
// caller reports the one that led to the rollback.
func (w *writer) rollback(ctx context.Context) {
	_, _ = w.session.exec(ctx, `ROLLBACK`)
}

// settle ends the waits of a group's callers. A group error err replaces their own.
func settle(members []*change, err error) {
	for _, c := range members {
		if err != nil {
			c.err = err
		}
		close(c.done)
	}
}

// isDatabaseError reports whether err comes from SQLite, after which the transaction
// must not continue. All other errors are refusals of one change.
func isDatabaseError(err error) bool {
	var vendor *sqlite.Error
	return errors.As(err, &vendor)
}

// close ends the writer after the current group.
func (w *writer) close() error {
	w.end()
	<-w.ended
	return errors.Join(w.session.close(), w.lock.close())
}
