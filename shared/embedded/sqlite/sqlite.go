package sqlite

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"

	"rollout/shared/clock"
	"rollout/shared/document"
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
	"rollout/shared/queue"
)

// stateFile is the name of the database in the state folder.
const stateFile = "state.db"

const (
	readers     = 4                    // connections that serve reads
	busyTimeout = "busy_timeout(5000)" // ms; only programs without our lock can keep us waiting
	patience    = 10 * time.Second     // a caller's longest wait for other processes' lock
)

// Options are what a State needs from its process.
type Options struct {
	Clock  clock.Clock  // for the visibility of messages; nil is the machine's
	Logger *slog.Logger // nil logs nothing
	// Check is how long the opening may look through the file for damage; 0
	// does not look. It reads some 500 MB a second.
	Check time.Duration
}

// State is the embedded store of documents and queues: the SQLite file
// state.db in a folder. Several processes, and several States of one process,
// may have the same folder open. Every write that returned without an error
// is on disk. A write whose context ends while it waits may still be applied.
type State struct {
	writer   *writer
	notifier *notifier
	readers  chan *session
	clock    clock.Clock
	damage   *damage
	path     string
}

// Open opens the state in the folder dir, both made if they are absent.
// A file that is no database, empty, or another program's, is Corrupt; one
// written by a newer rollout is Invalid. ctx bounds the opening only.
func Open(ctx context.Context, dir string, o Options) (_ *State, err error) {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, filesystem.Fault(err, "find the state folder %s", dir)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, filesystem.Fault(err, "make the state folder %s", dir)
	}
	lock, err := openFileLock(dir, o.Logger)
	if err != nil {
		return nil, err
	}
	s := &State{readers: make(chan *session, readers), clock: o.Clock, damage: newDamage(), path: filepath.Join(dir, stateFile)}
	if err := s.connect(ctx, lock, o.Logger); err != nil {
		return nil, errors.Join(err, lock.close())
	}
	if o.Check > 0 {
		err := s.read(ctx, func(ctx context.Context, r *session) error { return check(ctx, r, o.Check) })
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// connect opens the connections under the lock, so that only one process
// makes the schema, and starts the writer and the bell.
func (s *State) connect(ctx context.Context, lock *fileLock, log *slog.Logger) (err error) {
	if err := lock.lock(ctx, patience); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.unlock()) }()
	// A commit need not flush the files' timestamps. Where there is no
	// fdatasync this is an error, and commits go on with fsync.
	_, _ = sqlite.Fdatasync(true)
	// What outlives the opening must not end with its context.
	background := context.WithoutCancel(ctx)
	var sessions []*session
	defer func() {
		if err != nil {
			for _, one := range sessions {
				err = errors.Join(err, one.close())
			}
		}
	}()
	open := func(mode string, pragmas ...string) (*session, error) {
		one, err := openSession(background, s.path, mode, append(pragmas, busyTimeout)...)
		if err == nil {
			sessions = append(sessions, one)
		}
		return one, err
	}
	if err := makeFile(background, s.path); err != nil {
		return err
	}
	write, err := open("rw", "journal_mode(WAL)", "synchronous(FULL)", "wal_autocheckpoint(2000)", "journal_size_limit(67108864)")
	if err != nil {
		return err
	}
	if err := checkSchema(background, write); err != nil {
		return err
	}
	listen, err := open("ro")
	if err != nil {
		return err
	}
	for range readers {
		read, err := open("ro")
		if err != nil {
			return err
		}
		s.readers <- read
	}
	s.notifier = startNotifier(background, listen, s.clock, log)
	s.writer = startWriter(background, write, lock, s.notifier)
	return nil
}

// Commits is how many transactions this State has synced.
func (s *State) Commits() int64 { return s.writer.commits.Load() }

// Documents returns the documents, which are also a document.Watcher.
func (s *State) Documents() document.Store { return documents{s} }

// Queues returns the queues, which are also a queue.Depther.
func (s *State) Queues() queue.Queues { return queues{s} }

// Close ends the store. Writes that have not begun fail as Canceled, hints
// end, calls that wait for messages return. It must be called once, and no
// method after it.
func (s *State) Close() error {
	err := errors.Join(s.writer.close(), s.notifier.close())
	for range readers {
		err = errors.Join(err, (<-s.readers).close())
	}
	return err
}

// read runs f with a connection for reading. Reads are short, so they run to
// their end once they have begun: watching ctx meanwhile costs a goroutine.
func (s *State) read(ctx context.Context, f func(context.Context, *session) error) error {
	if ctx.Err() != nil {
		return fault.WithKind(fault.Canceled, context.Cause(ctx), "read %s", s.path)
	}
	if err := s.damage.refusal(); err != nil {
		return err
	}
	select {
	case r := <-s.readers:
		defer func() { s.readers <- r }()
		return s.damage.note(f(context.WithoutCancel(ctx), r))
	case <-ctx.Done():
		return fault.WithKind(fault.Canceled, context.Cause(ctx), "read %s", s.path)
	}
}

// readOnce is read for several statements: they see one state of the database,
// whose locks are taken and whose pages are looked up once.
func (s *State) readOnce(ctx context.Context, f func(context.Context, *session) error) error {
	return s.read(ctx, func(ctx context.Context, r *session) error {
		if _, err := r.exec(ctx, `BEGIN`); err != nil {
			return err
		}
		err := f(ctx, r)
		if _, endErr := r.exec(ctx, `ROLLBACK`); endErr != nil { // there is nothing to commit
			err = errors.Join(err, endErr)
		}
		return err
	})
}

// write runs change in the next group and returns when that is on disk.
func (s *State) write(ctx context.Context, size int, apply func(context.Context, *transaction) error) error {
	if err := s.damage.refusal(); err != nil {
		return err
	}
	return s.damage.note(s.writer.do(ctx, &change{ctx: ctx, size: size, apply: apply, done: make(chan struct{})}))
}

func (s *State) dir() string { return filepath.Dir(s.path) }
