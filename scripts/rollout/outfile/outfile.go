// Package outfile writes files for users. Each file appears complete and synced, with the permissions that the
// user's umask leaves, or it does not appear at all.
//
// A file is written under a hidden temporary name in the target's folder and renamed when it is complete. The package
// also reads and writes the run-id file, in which the output folder of a batch or a training names its run.
package outfile

import (
	"crypto/rand"
	"errors"
	"io"
	"os"
	"path/filepath"

	"rollout/shared/fault"
)

// File is a temporary file that becomes the target file. End it with CloseAndRename or Discard.
type File struct {
	*os.File
	path string
}

// Create opens a hidden temporary file in the folder of path. It returns the operating system's error unchanged.
func Create(path string) (*File, error) {
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"."+rand.Text()[:8])
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666) // os.CreateTemp ignores the umask
	if err != nil {
		return nil, err
	}
	return &File{File: f, path: path}, nil
}

// CloseAndRename syncs and closes the file, then renames it to its target path. It replaces an existing file. If a
// step fails, it removes the temporary file and returns Unavailable.
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

// Discard closes and removes the temporary file. It returns cause joined with the errors of doing so.
func (f *File) Discard(cause error) error {
	return errors.Join(cause, f.Close(), os.Remove(f.Name()))
}

// Write writes what write produces to path and replaces an existing file. It is Denied if the folder cannot be
// written. An error of write keeps its kind; errors of the operating system are Unavailable.
func Write(path string, write func(io.Writer) error) error {
	f, err := Create(path)
	if err != nil {
		return fault.WithKind(fault.Denied, err, "write %s", path)
	}
	if err := write(f); err != nil {
		kind := fault.KindOf(err)
		if kind == fault.Internal { // an error of the operating system
			kind = fault.Unavailable
		}
		return f.Discard(fault.WithKind(kind, err, "write %s", path))
	}
	return f.CloseAndRename()
}

// WriteBytes writes b to path as Write does.
func WriteBytes(path string, b []byte) error {
	return Write(path, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}
