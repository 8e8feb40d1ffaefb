package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"rollout/shared/disk"
	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

const (
	// tempFolder holds objects that are being written.
	tempFolder = ".rollout-tmp"
	// tempPrefix begins the hidden names of temporary files. PutFile creates one beside
	// its target.
	tempPrefix = ".rollout-"
	// copyBuffer is the size of the buffer of a streamed put, in bytes.
	copyBuffer = 256 << 10
	// writeBackEvery is how many bytes of a file are written before they are passed to
	// the disk. One large sync at the end would delay the small ones of other writers.
	writeBackEvery = 32 << 20
	objectMode     = 0o644
	// maxEmptyReads is the most consecutive reads without bytes or an error.
	maxEmptyReads = 100
)

// tempFile is an object that is being written, under a hidden name or without a name.
type tempFile struct {
	file     *os.File
	disk     disk.Disk
	folder   *folder // that contains the file
	name     string  // "" for an unnamed file
	unsynced int64   // bytes written since the last write-back
	placed   bool    // renamed, so that the temporary name does not exist any more
}

// newTemp creates a temporary file in the folder, and takes over the folder.
func (b *Bucket) newTemp(in *folder) (*tempFile, error) {
	name := tempPrefix + rand.Text()
	fd, err := b.disk.Create(in.fd, name, objectMode)
	if err != nil {
		in.close()
		return nil, err
	}
	return &tempFile{file: os.NewFile(uintptr(fd), name), disk: b.disk, folder: in, name: name}, nil
}

// newUnnamed creates an unnamed file for an object in the folder with the path. The
// kernel removes it if the process crashes.
func (b *Bucket) newUnnamed(path string) (*tempFile, error) {
	in, err := b.enter(path, true)
	if err != nil {
		return nil, err
	}
	fd, err := b.disk.Create(in.fd, "", objectMode)
	if err != nil {
		if in.removed() { // ext4 reports EPERM for a removed folder
			err = unix.ENOENT
		}
		in.close()
		return nil, err
	}
	return &tempFile{file: os.NewFile(uintptr(fd), path+"/(new)"), disk: b.disk, folder: in}, nil
}

func (t *tempFile) unnamed() bool { return t.name == "" }

// rename gives the file a new name. It fails with EEXIST if the name exists.
func (t *tempFile) rename(to *folder, name string) (err error) {
	if t.unnamed() {
		return t.disk.Name(int(t.file.Fd()), to.fd, name)
	}
	err = t.disk.Rename(t.folder.fd, t.name, to.fd, name, false)
	t.placed = err == nil
	return err
}

// discard closes the file and removes its temporary name, if it still has one.
func (t *tempFile) discard() {
	_ = t.file.Close() // a placed file was synced before
	if !t.placed && !t.unnamed() {
		_ = t.disk.Remove(t.folder.fd, t.name, false) // a leftover is hidden, and Open removes it later
	}
	t.folder.close()
}

// readError is an error of the caller's reader, as opposed to one of the disk.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }

// fill streams r into the file. It returns an error of r as a *readError. Buffers is of *[]byte,
// copyBuffer long: bytes in memory need none.
func (t *tempFile) fill(ctx context.Context, r io.Reader, buffers *sync.Pool) error {
	if inMemory, ok := r.(*bytes.Reader); ok && inMemory.Len() <= writeBackEvery && ctx.Err() == nil {
		_, err := inMemory.WriteTo(t.file) // avoids a copy; a bytes.Reader has no errors of its own
		return filesystem.Fault(err, "write")
	}
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	buffer := *pooled
	for {
		if err := ctx.Err(); err != nil {
			return fault.WithKind(fault.Canceled, err, "write")
		}
		n, readErr := readFull(r, buffer)
		if n > 0 {
			if _, err := t.file.Write(buffer[:n]); err != nil {
				return filesystem.Fault(err, "write")
			}
			if err := t.wrote(int64(n)); err != nil {
				return err
			}
		}
		if readErr == io.EOF {
			return nil
		}
		if readErr != nil {
			return &readError{err: readErr}
		}
	}
}

// readFull reads until the buffer is full or r returns an error. Unlike io.ReadFull it
// returns r's error unchanged, so that an io.ErrUnexpectedEOF is always one of r.
func readFull(r io.Reader, buffer []byte) (n int, err error) {
	empty := 0
	for n < len(buffer) && err == nil {
		var got int
		got, err = r.Read(buffer[n:])
		n += got
		if got > 0 {
			empty = 0
		} else if empty++; empty >= maxEmptyReads && err == nil {
			err = io.ErrNoProgress
		}
	}
	return n, err
}

// copyFrom appends a range of another file, inside the kernel if possible.
func (t *tempFile) copyFrom(ctx context.Context, src *os.File, offset, length int64) error {
	if _, err := src.Seek(offset, io.SeekStart); err != nil {
		return filesystem.Fault(err, "seek")
	}
	for length > 0 {
		if err := ctx.Err(); err != nil {
			return fault.WithKind(fault.Canceled, err, "copy")
		}
		n, err := io.CopyN(t.file, src, min(length, writeBackEvery))
		if err == io.EOF {
			return fault.New(fault.Corrupt, "the source shrank during the copy: %d bytes are missing", length-n)
		}
		if err != nil {
			return filesystem.Fault(err, "copy")
		}
		length -= n
		if err := t.wrote(n); err != nil {
			return err
		}
	}
	return nil
}

// wrote counts n written bytes, and passes them to the disk after every writeBackEvery
// bytes. The file is durable only after seal.
func (t *tempFile) wrote(n int64) error {
	if t.unsynced += n; t.unsynced < writeBackEvery {
		return nil
	}
	t.unsynced = 0
	err := disk.IgnoreEINTR(func() error { return writeBack(int(t.file.Fd())) })
	return filesystem.Fault(err, "sync")
}

// seal sets the modification time of the file and makes the file durable. The caller
// gives the time in nanoseconds: the file system's own clock may return the same time
// for several milliseconds, and after the reuse of an inode number two versions would
// be equal.
func (t *tempFile) seal(modified time.Time) error {
	stamp, err := unix.TimeToTimespec(modified)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "set the time %s", modified)
	}
	at, name, flags := t.folder.fd, t.name, unix.AT_SYMLINK_NOFOLLOW
	if t.unnamed() {
		at, name, flags = unix.AT_FDCWD, disk.PathOf(int(t.file.Fd())), 0
	}
	if err := unix.UtimesNanoAt(at, name, []unix.Timespec{stamp, stamp}, flags); err != nil {
		return filesystem.Fault(err, "set the time")
	}
	return filesystem.Fault(t.disk.Sync(int(t.file.Fd())), "sync")
}

// removeLeftovers removes temporary files whose last change is at least age ago.
func (b *Bucket) removeLeftovers(age time.Duration) error {
	temps, err := b.enter(tempFolder, false)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer temps.close()
	return b.removeOlder(temps, b.clock.Now().Add(-age))
}

// removeOlder removes the temporary files of the folder whose last change was before the
// given time. A copy of an old file has the old time of its last write.
func (b *Bucket) removeOlder(f *folder, before time.Time) error {
	return f.eachName(func(names []string) error {
		for _, name := range names {
			var st unix.Stat_t
			if !strings.HasPrefix(name, tempPrefix) {
				continue
			}
			err := unix.Fstatat(f.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
			if err != nil || !time.Unix(st.Ctim.Unix()).Before(before) {
				continue
			}
			if err := b.disk.Remove(f.fd, name, false); err != nil && err != unix.ENOENT {
				return filesystem.Fault(err, "remove the temporary file %s", name)
			}
		}
		return nil
	})
}
