// Package outfile writes files for users: each appears whole, synced and with
// the rights that the user's umask leaves a new file, or not at all.
package outfile

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"

	"rollout/shared/fault"
)

// File is on its way to its place. Place or Discard ends it.
type File struct {
	*os.File
	path string
}

// Create makes a hidden file beside path. Its error is the operating system's.
func Create(path string) (*File, error) {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text()[:8])
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) // os.CreateTemp asks no umask
	if err != nil {
		return nil, err
	}
	return &File{File: f, path: path}, nil
}

// CloseAndRename gives the file its name, once its bytes are on the disk. What was
// there is replaced.
func (f *File) CloseAndRename() error {
	err := errors.Join(f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), f.path)
	}
	if err != nil {
		return errors.Join(fault.WithKind(fault.Unavailable, err, "write %s", f.path), os.Remove(f.Name()))
	}
	return nil
}

// Discard removes the file, and returns the error that it was for.
func (f *File) Discard(because error) error {
	return errors.Join(because, f.Close(), os.Remove(f.Name()))
}

// Write puts what write writes at path, in the place of what was there.
func Write(path string, write func(io.Writer) error) error {
	f, err := Create(path)
	if err != nil {
		return fault.WithKind(fault.Denied, err, "write %s", path)
	}
	if err := write(f); err != nil {
		kind := fault.KindOf(err)
		if kind == fault.Internal { // the operating system's
			kind = fault.Unavailable
		}
		return f.Discard(fault.WithKind(kind, err, "write %s", path))
	}
	return f.CloseAndRename()
}
