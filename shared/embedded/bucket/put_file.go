package bucket

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"rollout/shared/blob"
	"rollout/shared/clock"
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

// submitLeftover is the age at which a hidden copy beside a target is removed as the
// leftover of a crashed submission.
const submitLeftover = time.Hour

// PutFile copies the user's file srcPath into the bucket in the folder bucketDir, under
// the key. It writes and syncs the copy under a hidden name in the folder of the key
// and then renames it, so that a watcher may announce it at once. Each call creates a new
// version, which the returned Info names.
func PutFile(ctx context.Context, bucketDir, srcPath, key string, o blob.PutOptions) (blob.Info, error) {
	if err := blob.CheckKey(key); err != nil {
		return blob.Info{}, err
	}
	b, err := Open(bucketDir, Options{Clock: clock.System{}})
	if err != nil {
		return blob.Info{}, err
	}
	defer b.Close() // putFile has synced its writes
	info, err := b.putFile(ctx, srcPath, key, o)
	return info, filesystem.Fault(err, "submit %s as %s", srcPath, key)
}

func (b *Bucket) putFile(ctx context.Context, srcPath, key string, o blob.PutOptions) (blob.Info, error) {
	src, err := os.OpenFile(srcPath, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return blob.Info{}, err
	}
	defer src.Close() // opened for reading; closing cannot lose data
	stat, err := src.Stat()
	if err != nil {
		return blob.Info{}, err
	}
	if !stat.Mode().IsRegular() {
		return blob.Info{}, &fault.Error{
			Kind:   fault.Invalid,
			Err:    fault.New(fault.Invalid, "%s is not a regular file", srcPath),
			Remedy: "write its content to a file first",
		}
	}
	target, err := b.enter(parentOf(key), true)
	if err != nil {
		return blob.Info{}, err
	}
	if err := b.removeOlder(target, b.clock.Now().Add(-submitLeftover)); err != nil {
		target.close()
		return blob.Info{}, err
	}
	temp, err := b.newTemp(target)
	if err != nil {
		return blob.Info{}, err
	}
	defer temp.discard()
	if err := temp.copyFrom(ctx, src, 0, stat.Size()); err != nil {
		return blob.Info{}, err
	}
	if err := temp.seal(randomNanoseconds(stat.ModTime())); err != nil {
		return blob.Info{}, err
	}
	info, err := b.describeTemp(temp, key)
	if err != nil {
		return blob.Info{}, err
	}
	return info, b.place(ctx, temp, key, o)
}

// randomNanoseconds returns t with a random fraction of the second, so that submitting
// the same file twice creates two versions.
func randomNanoseconds(t time.Time) time.Time {
	var random [4]byte
	_, _ = rand.Read(random[:]) // documented never to fail
	return time.Unix(t.Unix(), int64(binary.LittleEndian.Uint32(random[:])%1e9))
}
