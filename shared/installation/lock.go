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

	"rollout/shared/disk"
	"rollout/shared/fault"
)

// Files that are locked by the process that runs an installation's functions.
const (
	lockFile       = "up.lock"       // in the state folder
	bucketLockFile = ".rollout.lock" // in the bucket, of which it is no object
)

// AcquireLock makes this process the only one that runs the functions of the
// installation in dir. The lock ends when release is called or the process ends
// in any way. If another process holds the lock, the error is Invalid and names
// that process.
func AcquireLock(dir string) (release func() error, err error) {
	if err := disk.MakeFolder(disk.System{}, StateDir(dir)); err != nil {
		return nil, fault.WithKind(fault.Invalid, err, "make the state folder")
	}
	return acquire(filepath.Join(StateDir(dir), lockFile), true, func(pid string) error {
		return &fault.Error{Kind: fault.Invalid,
			Err:    fmt.Errorf("process %s already runs the installation in %s", pid, dir),
			Remedy: "stop it first, or use another folder; submit, status and stop work beside it"}
	})
}

// LockBucket makes this process the only one that runs functions over the bucket of the
// open installation in dir, as AcquireLock does. The bucket may be a link or a mount that
// leads into a copy of the installation, which has the same id. A file system that has no
// locks, or is full or read-only before it has the lock's file, is not locked. The lock
// keeps no file open for writing, so that the file system can be mounted read-only
// meanwhile.
func LockBucket(dir string) (release func() error, err error) {
	return acquire(filepath.Join(BucketDir(dir), bucketLockFile), false, func(pid string) error {
		return &fault.Error{Kind: fault.Invalid,
			Err:    fmt.Errorf("process %s already runs an installation over the bucket %s", pid, BucketDir(dir)),
			Remedy: "stop it first, or let the bucket be a folder of its own, not a link or a mount of another one's"}
	})
}

// acquire locks the file at the path, and writes the id of this process into it. If
// another process holds the lock, it returns the error of held. Unless it is required, a
// lock that the file system does not support is left out.
func acquire(path string, required bool, held func(pid string) error) (release func() error, err error) {
	access := os.O_RDONLY
	if required { // some network file systems lock only files that are open for writing
		access = os.O_RDWR
	}
	f, err := os.OpenFile(path, access|os.O_CREATE, 0o644)
	if !required && (errors.Is(err, syscall.EROFS) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, fault.WithKind(fault.Denied, err, "open %s", path)
	}
	if err := tryLock(f); err != nil {
		if !required && !errors.Is(err, syscall.EWOULDBLOCK) {
			return f.Close, nil
		}
		pid, _ := io.ReadAll(io.LimitReader(f, 32)) // only for the message
		return nil, errors.Join(held(strings.TrimSpace(string(pid))), f.Close())
	}
	err = os.WriteFile(path, fmt.Appendf(nil, "%d\n", os.Getpid()), 0o644)
	if err != nil && required { // else it is only for the message of others
		return nil, errors.Join(fault.WithKind(fault.Unavailable, err, "write %s", path), f.Close())
	}
	return f.Close, nil
}

// The kernel may release the lock of a killed process with a delay, so tryLock
// tries several times.
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
