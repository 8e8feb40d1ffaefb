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

// submitLeftover is when a hidden copy beside a target is a crashed
// submission's.
const submitLeftover = time.Hour

// PutFile puts a copy of the user's file at srcPath into the bucket in the
// folder bucketDir, under the key. The copy is written and synced under a
// hidden name in the key's own folder and then renamed, so that a watcher may
// take it at once, whole. What has the key already is replaced: each call
// makes a new version, which the returned Info names.
func PutFile(ctx context.Context, bucketDir, srcPath, key string) (blob.Info, error) {
	if err := blob.CheckKey(key); err != nil {
		return blob.Info{}, err
	}
	b, err := Open(bucketDir, Options{Clock: clock.System{}})
	if err != nil {
		return blob.Info{}, err
	}
	defer b.Close() // everything is synced by then
	info, err := b.putFile(ctx, srcPath, key)
	return info, filesystem.Fault(err, "submit %s as %s", srcPath, key)
}

func (b *Bucket) putFile(ctx context.Context, srcPath, key string) (blob.Info, error) {
	src, err := os.OpenFile(srcPath, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return blob.Info{}, err
	}
	defer src.Close() // read only: nothing can be lost
	stat, err := src.Stat()
	if err != nil {
		return blob.Info{}, err
	}
	if !stat.Mode().IsRegular() {
		return blob.Info{}, &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, "%s is not a regular file", srcPath),
			Remedy: "write it to a file first"}
	}
	target, err := b.enter(parentOf(key), true)
	if err != nil {
		return blob.Info{}, err
	}
	if err := target.removeOlder(b.clock.Now().Add(-submitLeftover), tempPrefix); err != nil {
		target.close()
		return blob.Info{}, err
	}
	temp, err := newTemp(target)
	if err != nil {
		return blob.Info{}, err
	}
	defer temp.discard()
	if err := temp.copyFrom(ctx, src, 0, stat.Size()); err != nil {
		return blob.Info{}, err
	}
	if err := temp.seal(sameSecond(stat.ModTime())); err != nil {
		return blob.Info{}, err
	}
	info, err := b.describeTemp(temp, key)
	if err != nil {
		return blob.Info{}, err
	}
	return info, b.place(ctx, temp, key, blob.PutOptions{})
}

// sameSecond keeps the time of the user's file but for the part below a
// second, which it draws: submitting one file twice makes two versions.
func sameSecond(t time.Time) time.Time {
	var dice [4]byte
	_, _ = rand.Read(dice[:]) // documented never to fail
	return time.Unix(t.Unix(), int64(binary.LittleEndian.Uint32(dice[:])%1e9))
}
