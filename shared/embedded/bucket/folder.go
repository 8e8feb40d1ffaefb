package bucket

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rollout/shared/blob"
	"rollout/shared/disk"
	"rollout/shared/fault"
)

// folder is an open folder of a bucket. All operations are relative to it and use a
// single name, so that a path component cannot be replaced by a symbolic link.
type folder struct {
	fd   int
	path string // relative to the bucket; "" is the bucket itself
	id   folderID
	// unsynced are the folders above whose entry that leads to this folder may not be
	// durable yet, outermost first.
	unsynced []*folder
	// shared reports whether fd is the bucket's own, which close keeps open.
	shared bool
}

// folderID identifies a folder independently of its path.
type folderID struct{ dev, ino uint64 }

// enter opens the folder with the path, segment by segment, without following
// symbolic links. With create it creates missing folders, and records which folders
// above must be synced before an entry of the folder is durable.
func (b *Bucket) enter(path string, create bool) (*folder, error) {
	at := &folder{fd: int(b.root.Fd()), id: b.rootID, shared: true}
	if path == "" {
		return at, nil
	}
	if known := b.enterKnown(path, create); known != nil {
		return known, nil
	}
	for name := range strings.SplitSeq(path, "/") {
		child := name
		if at.path != "" {
			child = at.path + "/" + name
		}
		next, err := openFolder(at.fd, name, child)
		if create && err == unix.ENOENT {
			if err = b.disk.Mkdir(at.fd, name); err == nil || err == unix.EEXIST {
				next, err = openFolder(at.fd, name, child)
			}
		}
		if err != nil {
			at.close()
			return nil, err
		}
		if create && !b.durable.has(next) {
			next.unsynced, at.unsynced = append(at.unsynced, at), nil
		} else {
			at.close()
		}
		at = next
	}
	return at, nil
}

// enterKnown opens the folder in one step. It returns nil if the folder does not exist
// or, with durable, if a folder above it must be synced.
func (b *Bucket) enterKnown(path string, durable bool) *folder {
	fd, err := openBelow(int(b.root.Fd()), path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil
	}
	f := &folder{fd: fd, path: path}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil {
		f.id = idOf(&st)
		if !durable || b.durable.has(f) {
			return f
		}
	}
	f.close()
	return nil
}

// openFolder opens the folder name in the open folder fd.
func openFolder(fd int, name, path string) (*folder, error) {
	f := &folder{path: path}
	err := disk.IgnoreEINTR(func() (err error) {
		f.fd, err = unix.Openat(fd, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		return err
	})
	var st unix.Stat_t
	if err == unix.ENOTDIR && unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && isLink(&st) {
		return nil, unix.ELOOP
	}
	if err != nil {
		return nil, err
	}
	if err := unix.Fstat(f.fd, &st); err != nil {
		f.close()
		return nil, err
	}
	f.id = idOf(&st)
	return f, nil
}

func idOf(st *unix.Stat_t) folderID {
	return folderID{dev: uint64(st.Dev), ino: st.Ino} //nolint:unconvert // Dev is an int32 on darwin
}

// close closes the folder and its unsynced parents.
func (f *folder) close() {
	for _, above := range f.unsynced {
		above.close()
	}
	if !f.shared {
		_ = unix.Close(f.fd) // opened for reading; closing cannot lose data
	}
}

// removed reports whether the folder was removed since it was opened.
func (f *folder) removed() bool {
	var st unix.Stat_t
	return unix.Fstat(f.fd, &st) == nil && st.Nlink == 0
}

// stat describes the object with the key, which must be in this folder.
func (f *folder) stat(key string) (blob.Info, error) {
	var st unix.Stat_t
	if err := unix.Fstatat(f.fd, nameOf(key), &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return blob.Info{}, err
	}
	return describe(key, &st)
}

// changeTime returns when the file's attributes or name last changed, in nanoseconds, -1 if
// it can't be read.
func (b *Bucket) changeTime(key string) int64 {
	folder, err := b.enter(parentOf(key), false)
	if err != nil {
		return -1
	}
	defer folder.close()
	var st unix.Stat_t
	if unix.Fstatat(folder.fd, nameOf(key), &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return -1
	}
	return st.Ctim.Nano()
}

// describe returns the info of the object with the key. It fails with ELOOP for a
// symbolic link, and with NotFound for any other file that is not regular.
func describe(key string, st *unix.Stat_t) (blob.Info, error) {
	if isLink(st) {
		return blob.Info{}, unix.ELOOP
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return blob.Info{}, fault.WithKind(fault.NotFound, blob.ErrNotFile, "%q", key)
	}
	modified := time.Unix(st.Mtim.Unix())
	return blob.Info{
		Key:     key,
		Size:    st.Size,
		Version: fmt.Sprintf("%x-%x-%x", st.Ino, st.Size, modified.UnixNano()),
		ModTime: modified,
	}, nil
}

// Moved reports whether two versions differ only by the inode: the file was copied or
// restored with its modification time, or its file system was mounted again.
func Moved(old, now string) bool {
	_, oldRest, _ := strings.Cut(old, "-")
	_, rest, ok := strings.Cut(now, "-")
	return ok && old != now && oldRest == rest
}

func isLink(st *unix.Stat_t) bool { return st.Mode&unix.S_IFMT == unix.S_IFLNK }

// makeDurable syncs the folder and its unsynced parents.
func (b *Bucket) makeDurable(f *folder) error {
	if err := b.syncs.sync(b.disk, f); err != nil {
		return err
	}
	for i, above := range f.unsynced {
		if err := b.syncs.sync(b.disk, above); err != nil {
			return err
		}
		if i > 0 {
			b.durable.add(above)
		}
	}
	if len(f.unsynced) > 0 {
		b.durable.add(f)
	}
	return nil
}
