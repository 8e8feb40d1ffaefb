package sqlite

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

// fileLock is a lock among processes (and among handles of one process) that
// starves nobody: whoever wants the lock waits at the file `next` for the
// right to wait at the file `hold`, so the one who has just let go of `hold`
// finds at most one waiter there, and that one comes first. A plain flock, and
// SQLite's own busy wait, let the last holder in again and again.
//
// Both are flocks, which the kernel drops with the process that dies, so a
// crash needs no recovery. The files are never removed. A turnstile is used by
// one goroutine at a time.
type fileLock struct {
	next, hold *os.File
	taken      chan error   // an acquisition that outlasted its caller; nil if none
	log        *slog.Logger // is told of long waits
}

// longWait is when a wait for the lock is so long that somebody should look
// why: writes take milliseconds.
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

// lock waits for the lock until ctx ends or patience is over, which is
// Unavailable: a process that was stopped while it wrote keeps the lock until
// it is continued or killed. The wait then goes on behind the scenes, and the
// next call joins it.
func (t *fileLock) lock(ctx context.Context, patience time.Duration) error {
	if t.taken == nil {
		if ok, err := t.tryLock(); ok || err != nil {
			return err
		}
		t.taken = make(chan error, 1)
		go func(taken chan<- error) { taken <- t.waitLock() }(t.taken)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	long := time.NewTimer(longWait)
	defer long.Stop()
	for {
		select {
		case err := <-t.taken:
			t.taken = nil
			return err
		case <-ctx.Done():
			return fault.WithKind(fault.Canceled, context.Cause(ctx), "wait for the lock %s", t.hold.Name())
		case <-long.C:
			t.log.WarnContext(ctx, "nobody can write the state meanwhile", "error", t.held(longWait))
		case <-timer.C:
			return t.held(patience)
		}
	}
}

// held is the error of a wait that was in vain.
func (t *fileLock) held(waited time.Duration) error {
	return &fault.Error{Kind: fault.Unavailable, Op: "wait for the lock " + t.hold.Name() + " for " + waited.String(), Remedy: filesystem.LockRemedy(t.hold, t.next)}
}

// tryLock takes the lock if that needs no waiting.
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

// close lets go of the lock. An acquisition that is still waiting ends when
// it gets the lock, which goes with the files.
func (t *fileLock) close() error {
	if taken := t.taken; taken != nil {
		t.taken = nil
		go func() {
			<-taken
			t.next.Close()
			t.hold.Close()
		}()
		return nil
	}
	return errors.Join(t.next.Close(), t.hold.Close())
}

// flock returns false without an error if LOCK_NB found the file locked.
func flock(f *os.File, how int) (bool, error) {
	err := filesystem.IgnoreEINTR(func() error { return syscall.Flock(int(f.Fd()), how) })
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, filesystem.Fault(err, "lock %s", f.Name())
}
