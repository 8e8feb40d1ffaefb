package bucket

import (
	"context"
	"errors"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rollout/shared/blob"
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

// Delete removes an object; see blob.Store. It also removes folders that become empty,
// except those at the top. The removal is not synced: after a power failure the
// complete object may exist again.
func (b *Bucket) Delete(ctx context.Context, key, version string) error {
	if err := blob.CheckKey(key); err != nil {
		return err
	}
	err := b.remove(ctx, key, version)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return filesystem.Fault(err, "delete %s", key)
}

func (b *Bucket) remove(ctx context.Context, key, version string) error {
	folder, err := b.enter(parentOf(key), false)
	if err != nil {
		return notDirAsNotExist(err)
	}
	defer folder.close()
	unlock, err := b.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	info, err := folder.stat(key)
	if fault.Is(err, fault.NotFound) { // a folder or device, which is not an object
		return unix.ENOENT
	}
	if err != nil {
		return err
	}
	if version != "" && version != info.Version {
		return fault.New(fault.Conflict, "the version %s was replaced: the object has version %s", version, info.Version)
	}
	if err := b.disk.Remove(folder.fd, nameOf(key), false); err != nil {
		return err
	}
	b.prune(parentOf(key))
	return nil
}

// prune removes the folder if it is empty, and then empty folders above it. It keeps
// the folders at the top, because users and watchers rely on them.
func (b *Bucket) prune(path string) {
	for strings.Contains(path, "/") {
		above, err := b.enter(parentOf(path), false)
		if err != nil {
			return
		}
		err = b.disk.Remove(above.fd, nameOf(path), true)
		above.close()
		if err != nil { // usually: the folder is not empty
			return
		}
		b.durable.remove(path)
		path = parentOf(path)
	}
}

// lockPoll is the interval between attempts to take the lock between processes, and
// lockWait their time limit. The lock is held for microseconds, unless its holder is
// stopped.
const (
	lockPoll = 2 * time.Millisecond
	lockWait = 10 * time.Second
)

// lock excludes all other replacements and removals in the bucket, in all processes.
func (b *Bucket) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case b.mutex <- struct{}{}:
	case <-ctx.Done():
		return nil, fault.WithKind(fault.Canceled, ctx.Err(), "wait for the bucket's lock")
	}
	fd := int(b.root.Fd())
	for waited := time.Duration(0); ; waited += lockPoll {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() {
				_ = unix.Flock(fd, unix.LOCK_UN) // fails only for a closed bucket, which holds no lock
				<-b.mutex
			}, nil
		}
		if err == unix.EINTR || err == unix.EWOULDBLOCK {
			err = nil
		}
		if err == nil && waited >= lockWait {
			err = &fault.Error{
				Kind:   fault.Unavailable,
				Op:     "wait for the lock of the bucket " + b.dir + " for " + lockWait.String(),
				Remedy: filesystem.LockRemedy(b.root),
			}
		}
		if err == nil {
			select {
			case <-time.After(lockPoll):
				continue
			case <-ctx.Done():
				err = fault.WithKind(fault.Canceled, ctx.Err(), "wait for the bucket's lock")
			}
		}
		<-b.mutex
		return nil, err
	}
}
