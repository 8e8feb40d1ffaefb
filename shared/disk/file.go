package disk

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// File is a new file that is being written under a hidden name. It gets its final name
// when it is complete. End it with Commit, CommitNew or Discard.
type File struct {
	*os.File
	disk Disk
	path string
}

// Create creates a hidden file in the folder of path, with the mode that the umask
// leaves. Errors are those of the operating system.
func Create(d Disk, path string, mode fs.FileMode) (*File, error) {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text()[:8])
	fd, err := d.Create(AtWorkingDir, name, uint32(mode.Perm()))
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: path, Err: err}
	}
	return &File{File: os.NewFile(uintptr(fd), name), disk: d, path: path}, nil
}

// Commit makes the file durable under its final name, replaces an existing file, and
// closes it. If a step before the rename fails, it removes the file.
func (f *File) Commit() error { return f.commit(true) }

// CommitNew is like Commit, but fails with an fs.ErrExist if the final name exists.
func (f *File) CommitNew() error { return f.commit(false) }

func (f *File) commit(replace bool) error {
	if err := pathError("sync", f.Name(), f.disk.Sync(int(f.Fd()))); err != nil {
		return f.Discard(err)
	}
	err := Rename(f.disk, f.Name(), f.path, replace)
	if errors.Is(err, unix.EINVAL) && !replace { // the file system has no rename without replacing
		err = f.link()
	}
	var notRenamed *os.LinkError
	if errors.As(err, &notRenamed) {
		return f.Discard(err)
	}
	return errors.Join(err, f.Close())
}

// link gives the file its final name beside the hidden one, and removes that.
func (f *File) link() error {
	if err := f.disk.Link(AtWorkingDir, f.Name(), AtWorkingDir, f.path); err != nil {
		return &os.LinkError{Op: "link", Old: f.Name(), New: f.path, Err: err}
	}
	return errors.Join(f.remove(), Sync(f.disk, filepath.Dir(f.path)))
}

func (f *File) remove() error {
	return pathError("remove", f.Name(), f.disk.Remove(AtWorkingDir, f.Name(), false))
}

// Discard closes and removes the file. It returns cause joined with the errors of doing
// so.
func (f *File) Discard(cause error) error { return errors.Join(cause, f.Close(), f.remove()) }
