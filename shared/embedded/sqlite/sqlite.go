package sqlite

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"modernc.org/sqlite"

	"rollout/shared/clock"
	"rollout/shared/disk"
	"rollout/shared/document"
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
	"rollout/shared/queue"
)

// stateFile is the name of the database in the state folder.
const stateFile = "state.db"

// fullSync makes each sync of SQLite reach the disk's medium also on darwin, whose fsync
// does not.
const fullSync = "fullfsync(ON)"

const (
	readers     = 4                    // connections that serve reads
	busyTimeout = "busy_timeout(5000)" // ms; applies only to programs that do not use fileLock
	lockTimeout = 10 * time.Second     // a caller's longest wait for the lock of another process
)

// Options configure a State.
type Options struct {
	Clock  clock.Clock  // decides which messages are visible; default: the machine's
	Logger *slog.Logger // default: discards
	// Check is how long Open may check the file for damage; 0 skips the check. It
	// reads about 500 MB a second.
	Check time.Duration
	Disk  disk.Disk // default: the machine's
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Disk == nil {
		o.Disk = disk.System{}
	}
	return o
}

// State is the embedded store of documents and queues: the SQLite file state.db in a
// folder. Several processes, and several States of one process, may have the same
// folder open. A State is safe for concurrent use. A write that returned without an
// error is durable. A write whose context ends while it waits may still be applied.
type State struct {
	writer   *writer
	notifier *notifier
	bell     *bell
	readers  chan *session
	clock    clock.Clock
	disk     disk.Disk
	damage   *damage
	path     string
}

// Open opens the state in the folder dir, and creates both if they do not exist. It
// fails with Corrupt if the file is empty, not a database, or another program's, and
// with Invalid if a newer rollout wrote it. ctx limits only the opening.
func Open(ctx context.Context, dir string, o Options) (_ *State, err error) {
	o = o.withDefaults()
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, filesystem.Fault(err, "find the state folder %s", dir)
	}
	if err := disk.MakeFolder(o.Disk, dir); err != nil {
		return nil, filesystem.Fault(err, "create the state folder %s", dir)
	}
	lock, err := openFileLock(dir, o.Logger)
	if err != nil {
		return nil, err
	}
	s := &State{
		readers: make(chan *session, readers),
		clock:   o.Clock,
		disk:    o.Disk,
		damage:  newDamage(),
		path:    filepath.Join(dir, stateFile),
	}
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

// connect opens the connections and starts the writer and the notifier. It holds the
// lock meanwhile, so that only one process creates the schema.
func (s *State) connect(ctx context.Context, lock *fileLock, log *slog.Logger) (err error) {
	if err := lock.lock(ctx, lockTimeout); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.unlock()) }()
	// A commit need not flush the timestamps of the files. On a system without
	// fdatasync this fails, and commits use fsync.
	_, _ = sqlite.Fdatasync(true)
	// The connections outlive the call, so they must not end with its context.
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
	if _, err := finishRestore(s.disk, s.path, log); err != nil {
		return err
	}
	if err := createFile(background, s.disk, s.path); err != nil {
		return err
	}
	write, err := open("rw", "journal_mode(WAL)", "synchronous(FULL)", fullSync,
		"wal_autocheckpoint(2000)", "journal_size_limit(67108864)")
	if err != nil {
		return err
	}
	if err := checkSchema(background, write); err != nil {
		return err
	}
	poll, err := open("ro")
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
	s.bell = startBell(ctx, lock.hold, log)
	s.notifier = startNotifier(background, poll, s.bell.rings, s.clock, log)
	s.writer = startWriter(background, write, lock, s.notifier, s.bell)
	return nil
}

// Commits returns how many transactions this State has committed.
func (s *State) Commits() int64 { return s.writer.commits.Load() }

// Documents returns the documents. The store is also a document.Watcher.
func (s *State) Documents() document.Store { return documents{s} }

// Queues returns the queues. They are also a queue.Depther.
func (s *State) Queues() queue.Queues { return queues{s} }

// Close closes the store. Pending writes and calls that wait for messages fail with
// Canceled, and the channels of watches are closed. Call Close once, and no method
// after it.
func (s *State) Close() error {
	s.bell.close()
	err := errors.Join(s.writer.close(), s.notifier.close())
	for range readers {
		err = errors.Join(err, (<-s.readers).close())
	}
	return err
}

// read runs f with a connection for reading. A read that has begun does not end with
// ctx: reads are short, and watching ctx would cost a goroutine.
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

// readSnapshot runs f in one read transaction: all statements of f see the same state
// of the database, and SQLite takes its locks only once.
func (s *State) readSnapshot(ctx context.Context, f func(context.Context, *session) error) error {
	return s.read(ctx, func(ctx context.Context, r *session) error {
		if _, err := r.exec(ctx, `BEGIN`); err != nil {
			return err
		}
		err := f(ctx, r)
		if _, endErr := r.exec(ctx, `ROLLBACK`); endErr != nil { // the transaction has no writes
			err = errors.Join(err, endErr)
		}
		return err
	})
}

// write runs apply in the next group of writes and returns when the group is durable.
// size is the approximate number of bytes that apply writes.
func (s *State) write(ctx context.Context, size int, apply func(context.Context, *transaction) error) error {
	if err := s.damage.refusal(); err != nil {
		return err
	}
	c := &change{ctx: ctx, size: size, apply: apply, done: make(chan struct{})}
	return s.damage.note(s.writer.do(ctx, c))
}

func (s *State) dir() string { return filepath.Dir(s.path) }
