package sqlite

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"rollout/shared/disk"
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

// fileLock is a fair lock between processes, and between handles of one process. It
// consists of two files that are locked with flock. The holder of the lock has locked
// `hold`. A process locks `next` while it waits for `hold`, so at most one process
// waits for `hold`, and it gets the lock before the last holder can take it again. A
// plain flock, and SQLite's own busy wait, would let the last holder starve the
// others.
//
// The kernel releases a flock when its process dies, so a crash needs no recovery.
// The files are never removed. One goroutine at a time may use a fileLock.
type fileLock struct {
	next, hold *os.File
	pending    chan error   // the result of an acquisition that outlived its call, or nil
	log        *slog.Logger // gets a warning for long waits
}

// longWait is the wait after which the log gets a warning. Writes take milliseconds.
const longWait = 2 * time.Second

func openFileLock(dir string, log *slog.Logger) (*fileLock, error) {
	next, err := openLockFile(filepath.Join(dir, "state.next.lock"))
	if err != nil {
		return nil, err
	}
	hold, err := openLockFile(filepath.Join(dir, "state.hold.lock"))
	if err != nil {
		return nil, errors.Join(err, next.Close())
	}
	return &fileLock{next: next, hold: hold, log: log}, nil
}

func openLockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o644)
	return f, filesystem.Fault(err, "open the lock %s", path)
}

// lock waits for the lock until ctx ends or the timeout elapses. A timeout is
// Unavailable: a process that is stopped during a write keeps the lock until it is
// continued or killed. After either, a goroutine goes on waiting for the lock, and
// the next call waits for its result.
func (t *fileLock) lock(ctx context.Context, timeout time.Duration) error {
	if t.pending == nil {
		if ok, err := t.tryLock(); ok || err != nil {
			return err
		}
		t.pending = make(chan error, 1)
		go func(pending chan<- error) { pending <- t.waitLock() }(t.pending)
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	long := time.NewTimer(longWait)
	defer long.Stop()
	for {
		select {
		case err := <-t.pending:
			t.pending = nil
			return err
		case <-ctx.Done():
			return fault.WithKind(fault.Canceled, context.Cause(ctx), "wait for the lock %s", t.hold.Name())
		case <-long.C:
			t.log.WarnContext(ctx, "writes to the state are blocked by another process", "error", t.timeoutError(longWait))
		case <-timer.C:
			return t.timeoutError(timeout)
		}
	}
}

// timeoutError returns the error of a wait that timed out.
func (t *fileLock) timeoutError(waited time.Duration) error {
	return &fault.Error{
		Kind:   fault.Unavailable,
		Op:     "wait for the lock " + t.hold.Name() + " for " + waited.String(),
		Remedy: filesystem.LockRemedy(t.hold, t.next),
	}
}

// tryLock takes the lock if it is free, and reports whether it did.
func (t *fileLock) tryLock() (bool, error) {
	if ok, err := flock(t.next, syscall.LOCK_EX|syscall.LOCK_NB); !ok {
		return false, err
	}
	ok, err := flock(t.hold, syscall.LOCK_EX|syscall.LOCK_NB)
	if _, unlockErr := flock(t.next, syscall.LOCK_UN); unlockErr != nil {
		err = errors.Join(err, unlockErr)
	}
	return ok, err
}

// waitLock waits for the lock without a time limit.
func (t *fileLock) waitLock() error {
	if _, err := flock(t.next, syscall.LOCK_EX); err != nil {
		return err
	}
	_, err := flock(t.hold, syscall.LOCK_EX)
	_, unlockErr := flock(t.next, syscall.LOCK_UN)
	return errors.Join(err, unlockErr)
}

func (t *fileLock) unlock() error {
	_, err := flock(t.hold, syscall.LOCK_UN)
	return err
}

// close releases the lock and closes its files. A pending acquisition closes the files
// when it gets the lock.
func (t *fileLock) close() error {
	if pending := t.pending; pending != nil {
		t.pending = nil
		go func() {
			<-pending
			t.next.Close()
			t.hold.Close()
		}()
		return nil
	}
	return errors.Join(t.next.Close(), t.hold.Close())
}

// flock calls flock(2). It returns false without an error if how has LOCK_NB and the
// file is locked.
func flock(f *os.File, how int) (bool, error) {
	err := disk.IgnoreEINTR(func() error { return syscall.Flock(int(f.Fd()), how) })
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, filesystem.Fault(err, "lock %s", f.Name())
}
