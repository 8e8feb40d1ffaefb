package sqlite

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"modernc.org/sqlite"

	"rollout/shared/fault"
)

// Bounds of one group of writes.
const (
	groupChanges = 512
	groupBytes   = 8 << 20
)

// writer is the one goroutine of a State that writes. It gathers the changes
// of all callers, documents' and queues' alike, into groups: one lock, one
// transaction, one sync each.
type writer struct {
	session  *session
	lock     *fileLock
	notifier *notifier
	changes  chan *change
	next     *change         // did not fit into the last group
	closing  context.Context // over when the writer is to end
	end      context.CancelFunc
	ended    chan struct{} // closed by it when it has
	commits  atomic.Int64  // transactions that had something to write
	steps    commitHooks
}

// commitHooks lets a test stop a process between two steps of a commit.
type commitHooks struct{ beforeCommit, afterCommit func() }

// change is one caller's part of a group. apply returns an error that is not
// the database's only if it has changed nothing.
type change struct {
	ctx   context.Context // its caller's
	size  int             // bytes it writes, roughly
	apply func(context.Context, *transaction) error
	err   error
	done  chan struct{} // closed when err stands
}

// transaction is a transaction under way.
type transaction struct {
	*session
	before int64    // the database's counter of writes when the group began
	writes int64    // and now
	keys   []string // of documents that changed
	queues []string // that have messages which are, or soon get, visible
}

// wrote counts a write of the document.
func (g *transaction) wrote(key string) {
	g.writes++
	g.keys = append(g.keys, key)
}

// filled counts a write that gave the queue something to receive.
func (g *transaction) filled(queue string) {
	g.writes++
	if !slices.Contains(g.queues, queue) {
		g.queues = append(g.queues, queue)
	}
}

func startWriter(ctx context.Context, s *session, lock *fileLock, b *notifier) *writer {
	w := &writer{session: s, lock: lock, notifier: b, changes: make(chan *change, groupChanges), ended: make(chan struct{})}
	w.closing, w.end = context.WithCancel(ctx)
	go w.run(ctx)
	return w
}

// do hands a change over and waits until it is on disk or refused.
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

// commitGroup waits for the lock and only then gathers the group, so that
// whoever came meanwhile is part of it.
func (w *writer) commitGroup(ctx context.Context) {
	lockErr := w.lock.lock(w.closing, patience)
	members := w.gather()
	if lockErr != nil {
		settle(members, lockErr)
		return
	}
	g, err := w.transact(ctx, members)
	err = errors.Join(err, w.lock.unlock())
	if err == nil {
		w.notifier.notify(g)
	}
	settle(members, err)
}

// gather takes the changes that wait, up to the bounds of a group.
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

// transact applies the members whose callers still wait in one transaction. Its error is that of all
// of them; an error that concerns one member alone is left in that one.
func (w *writer) transact(ctx context.Context, members []*change) (*transaction, error) {
	if _, err := w.session.exec(ctx, `BEGIN IMMEDIATE`); err != nil {
		return nil, err
	}
	g, err := w.apply(ctx, members)
	if err == nil && w.steps.beforeCommit != nil {
		w.steps.beforeCommit()
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
	if w.steps.afterCommit != nil {
		w.steps.afterCommit()
	}
	return g, nil
}

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
		if c.err = c.apply(ctx, g); ofDatabase(c.err) {
			return nil, c.err
		}
	}
	if g.writes != g.before {
		_, err = w.session.exec(ctx, `UPDATE counter SET writes = ?`, g.writes)
	}
	return g, err
}

// rollback ends the transaction if SQLite has not done so itself; whatever
// went wrong has been reported already.
func (w *writer) rollback(ctx context.Context) {
	_, _ = w.session.exec(ctx, `ROLLBACK`)
}

// settle tells the callers of a group: err is that of the group.
func settle(members []*change, err error) {
	for _, c := range members {
		if err != nil {
			c.err = err
		}
		close(c.done)
	}
}

// ofDatabase tells errors that spoil the transaction from refusals.
func ofDatabase(err error) bool {
	var vendor *sqlite.Error
	return errors.As(err, &vendor)
}

// close ends the writer after the group under way.
func (w *writer) close() error {
	w.end()
	<-w.ended
	return errors.Join(w.session.close(), w.lock.close())
}
