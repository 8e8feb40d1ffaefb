package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/oklog/ulid/v2"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/disk"
	"rollout/shared/fault"
)

// Restore creates the folder dst with the snapshot's files. dst must not exist, and its
// parent must exist. The folder appears as a whole and durable after every byte of the
// archive was verified, or not at all. Bytes with another digest, and an archive that Save cannot
// have written, are Corrupt.
func (s Store) Restore(ctx context.Context, snap Snapshot, dst string) (err error) {
	id, length, err := snap.part()
	if err != nil {
		return err
	}
	dst = filepath.Clean(dst)
	defer func() { err = fault.Wrap(err, "restore snapshot %s to %s", snap.ID, dst) }()
	if limit := s.Limits.orDefault().size(); length > limit {
		return fault.New(fault.Exhausted, "its archive has %d bytes, the limit is %d", length, limit)
	}
	if _, err := os.Lstat(dst); !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return fault.WithKind(fault.Denied, err, "check the folder")
		}
		return &fault.Error{Kind: fault.Invalid, Err: errors.New("it exists"),
			Remedy: "name a folder that does not exist yet"}
	}
	stage := filepath.Join(filepath.Dir(dst), fmt.Sprintf(".%s.%s.partial", filepath.Base(dst), ulid.Make()))
	if err := os.Mkdir(stage, 0o755); err != nil {
		return &fault.Error{Kind: fault.Invalid, Err: err, Remedy: "name a folder whose parent exists and is writable"}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(stage))
		}
	}()
	if err := s.fetch(ctx, id, length, stage); err != nil {
		return err
	}
	d := s.Disk
	if d == nil {
		d = disk.System{}
	}
	if err := disk.SyncTree(d, stage); err != nil {
		return unwritable(err)
	}
	return unwritable(disk.Rename(d, stage, dst, true))
}

// fetch extracts the object into the folder stage, and verifies it.
func (s Store) fetch(ctx context.Context, id identity.ContentID, length int64, stage string) (err error) {
	key := identity.ContentKey(id)
	body, info, err := s.Blobs.Get(ctx, key, blob.GetOptions{})
	if fault.Is(err, fault.NotFound) {
		return fault.WithKind(fault.Corrupt, err, "its archive does not exist")
	}
	if err != nil {
		return err
	}
	defer body.Close() // read only
	if info.Size != length {
		return fault.New(fault.Corrupt, "its archive %s has %d bytes, not %d", key, info.Size, length)
	}
	root, err := os.OpenRoot(stage)
	if err != nil {
		return unwritable(err)
	}
	defer root.Close()
	read, canon := identity.NewHasher(), identity.NewHasher()
	in := io.TeeReader(io.LimitReader(body, length), read)
	unpacked := extract(in, root, canon, s.Limits.orDefault())
	if unpacked != nil && !fault.Is(unpacked, fault.Corrupt) {
		return unpacked
	}
	if _, err := io.Copy(io.Discard, in); err != nil { // the digest covers all bytes, also after an error in the archive
		return err
	}
	switch {
	case read.Sum() != id:
		return fault.New(fault.Corrupt, "its archive %s has other bytes: their blake3 is %s", key, read.Sum())
	case unpacked != nil:
		return unpacked
	case canon.Sum() != id:
		return fault.New(fault.Corrupt, "archive: rollout does not write archives in this form")
	}
	return nil
}
