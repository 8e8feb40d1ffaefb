package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"rollout/shared/embedded/internal/filesystem"
	"rollout/shared/fault"
)

const (
	// tempFolder holds objects that are being written.
	tempFolder = ".rollout-tmp"
	// tempPrefix begins the hidden names that RenameInto uses beside its
	// target.
	tempPrefix = ".rollout-"
	// copyBuffer is how much is read before it is written.
	copyBuffer = 256 << 10
	// syncEvery is how much is written between two syncs of a file's data: one
	// large sync at the end holds up everybody else's small ones.
	syncEvery = 32 << 20
	// maxEmptyReads is how often in a row a reader may give nothing.
	maxEmptyReads = 100
)

// tempFile is an object that is being written: under a hidden name, or without
// one.
type tempFile struct {
	file     *os.File
	folder   *folder // where it is
	name     string  // "" is none
	unsynced int64   // bytes written since the last sync of data
	placed   bool    // it was renamed and has no temporary name any more
}

// newTemp makes a temporary file in the folder, which it then owns.
func newTemp(in *folder) (*tempFile, error) {
	name := tempPrefix + rand.Text()
	var fd int
	err := filesystem.IgnoreEINTR(func() (err error) {
		fd, err = unix.Openat(in.fd, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
		return err
	})
	if err != nil {
		in.close()
		return nil, err
	}
	return &tempFile{file: os.NewFile(uintptr(fd), name), folder: in, name: name}, nil
}

// newNameless makes a file that has no name yet, for an object in the folder
// with the path. A crash leaves nothing of it behind.
func (b *Bucket) newNameless(path string) (*tempFile, error) {
	in, err := b.enter(path, true)
	if err != nil {
		return nil, err
	}
	var fd int
	err = filesystem.IgnoreEINTR(func() error {
		fd, err = openNameless(in.fd)
		return err
	})
	if err != nil {
		if in.removed() { // ext4 says "not permitted" then
			err = unix.ENOENT
		}
		in.close()
		return nil, err
	}
	return &tempFile{file: os.NewFile(uintptr(fd), path+"/(new)"), folder: in}, nil
}

func (t *tempFile) nameless() bool { return t.name == "" }

// rename gives the file a name that nobody has.
func (t *tempFile) rename(to *folder, name string) (err error) {
	if t.nameless() {
		return nameNameless(int(t.file.Fd()), to.fd, name)
	}
	err = filesystem.RenameNoReplace(t.folder.fd, t.name, to.fd, name)
	t.placed = err == nil
	return err
}

// discard closes the file and removes it under its temporary name, if it still
// has it.
func (t *tempFile) discard() {
	_ = t.file.Close() // synced before, if it matters
	if !t.placed && !t.nameless() {
		_ = unix.Unlinkat(t.folder.fd, t.name, 0) // a leftover is invisible and removed later
	}
	t.folder.close()
}

// readError is an error of the reader that a put was given, as opposed to one
// of the disk.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }

// fill streams r into the file. An error of r comes back as a *readError.
func (t *tempFile) fill(ctx context.Context, r io.Reader, buffer []byte) error {
	if inMemory, ok := r.(*bytes.Reader); ok && inMemory.Len() <= syncEvery && ctx.Err() == nil {
		_, err := inMemory.WriteTo(t.file) // without a copy; this reader has no errors
		return filesystem.Fault(err, "write")
	}
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

// readFull fills the buffer as far as r gives. Unlike io.ReadFull it passes on
// r's own io.ErrUnexpectedEOF as the error that it is.
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

// copyFrom appends a range of another file, inside the kernel where it can.
func (t *tempFile) copyFrom(ctx context.Context, src *os.File, offset, length int64) error {
	if _, err := src.Seek(offset, io.SeekStart); err != nil {
		return filesystem.Fault(err, "seek")
	}
	for length > 0 {
		if err := ctx.Err(); err != nil {
			return fault.WithKind(fault.Canceled, err, "copy")
		}
		n, err := io.CopyN(t.file, src, min(length, syncEvery))
		if err == io.EOF {
			return fault.New(fault.Corrupt, "the source became shorter while it was copied: %d bytes are missing", length-n)
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

// wrote syncs the data when enough has been written since the last time.
func (t *tempFile) wrote(n int64) error {
	if t.unsynced += n; t.unsynced < syncEvery {
		return nil
	}
	t.unsynced = 0
	return filesystem.Fault(filesystem.IgnoreEINTR(func() error { return syncData(int(t.file.Fd())) }), "sync")
}

// seal gives the file its time of modification and makes it durable. The time
// comes from the caller to the nanosecond, because the file system's own may
// be the same for writes within some milliseconds, and with a file number used
// again two versions would then look alike.
func (t *tempFile) seal(modified time.Time) error {
	stamp, err := unix.TimeToTimespec(modified)
	if err != nil {
		return fault.WithKind(fault.Invalid, err, "set the time %s", modified)
	}
	at, name, flags := t.folder.fd, t.name, unix.AT_SYMLINK_NOFOLLOW
	if t.nameless() {
		at, name, flags = unix.AT_FDCWD, fdPath(int(t.file.Fd())), 0
	}
	if err := unix.UtimesNanoAt(at, name, []unix.Timespec{stamp, stamp}, flags); err != nil {
		return filesystem.Fault(err, "set the time")
	}
	return filesystem.Fault(t.file.Sync(), "sync")
}

// removeLeftovers removes temporary files that nobody has written to for the
// age.
func (b *Bucket) removeLeftovers(age time.Duration) error {
	temps, err := b.enter(tempFolder, false)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer temps.close()
	return temps.removeOlder(b.clock.Now().Add(-age), tempPrefix)
}

// removeOlder removes the folder's files with the name's prefix that were last
// written before the time.
func (f *folder) removeOlder(before time.Time, prefix string) error {
	return f.eachName(func(names []string) error {
		for _, name := range names {
			var st unix.Stat_t
			if len(name) < len(prefix) || name[:len(prefix)] != prefix {
				continue
			}
			if unix.Fstatat(f.fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || !time.Unix(st.Mtim.Unix()).Before(before) {
				continue
			}
			if err := unix.Unlinkat(f.fd, name, 0); err != nil && err != unix.ENOENT {
				return filesystem.Fault(err, "remove leftover %s", name)
			}
		}
		return nil
	})
}
