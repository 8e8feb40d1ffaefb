package installation

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"rollout/shared/fault"
)

// lockFile is held by the one process that runs an installation's functions.
const lockFile = "up.lock"

// AcquireLock makes this process the only one that runs the installation's
// functions, until the returned function is called or the process ends,
// however it ends. The error, an Invalid one, names who is.
func AcquireLock(dir string) (release func() error, err error) {
	path := filepath.Join(StateDir(dir), lockFile)
	if err := os.MkdirAll(StateDir(dir), 0o755); err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "make the state folder")
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fault.WithKind(fault.Denied, err, "open %s", path)
	}
	if err := tryLock(f); err != nil {
		who, _ := io.ReadAll(io.LimitReader(f, 32)) // only to say who
		return nil, errors.Join(&fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("process %s already runs the installation in %s", strings.TrimSpace(string(who)), dir),
			Remedy: "stop it first, or use another folder; submit, status and stop work beside it"}, f.Close())
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, fmt.Sprintf("%d\n", os.Getpid()))); err != nil {
		return nil, errors.Join(fault.WithKind(fault.Unavailable, err, "write %s", path), f.Close())
	}
	return f.Close, nil
}

// The kernel may take a moment to let go of a killed process's lock.
const (
	lockTries = 10
	lockPause = 50 * time.Millisecond
)

func tryLock(f *os.File) (err error) {
	for range lockTries {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return nil
		}
		time.Sleep(lockPause)
	}
	return err
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}
