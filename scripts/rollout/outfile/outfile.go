// Package outfile writes files for users. Each file appears complete and durable, with the permissions that the user's
// umask leaves, or it does not appear at all.
//
// A file is written under a hidden temporary name in the target's folder and renamed when it is complete. The package
// also reads and writes the run-id file, in which the output folder of a batch or a training names its run.
package outfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"rollout/shared/disk"
	"rollout/shared/fault"
)

// File is a temporary file that becomes the target file. End it with CloseAndRename or Discard.
type File struct {
	*disk.File
	path string
}

// Create opens a hidden temporary file in the folder of path. It returns the operating system's error unchanged.
func Create(path string) (*File, error) { return create(disk.System{}, path, 0o666) }

// CreateSecret is like Create for a file that only its owner may read.
func CreateSecret(path string) (*File, error) { return create(disk.System{}, path, 0o600) }

func create(d disk.Disk, path string, mode fs.FileMode) (*File, error) {
	f, err := disk.Create(d, path, mode)
	if err != nil {
		return nil, err
	}
	return &File{f, path}, nil
}

// CloseAndRename makes the file durable under its target path and closes it. It replaces an existing file. If a step
// fails, it removes the temporary file and returns Unavailable.
func (f *File) CloseAndRename() error {
	return fault.WithKind(fault.Unavailable, f.Commit(), "write %s", f.path)
}

// CloseAndRenameNew is like CloseAndRename, but Invalid if the target path exists.
func (f *File) CloseAndRenameNew() error {
	err := f.CommitNew()
	if errors.Is(err, fs.ErrExist) {
		return Exists(f.path)
	}
	return fault.WithKind(fault.Unavailable, err, "write %s", f.path)
}

// Exists returns the Invalid error of a new file whose path exists.
func Exists(path string) error {
	return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s already exists", path),
		Remedy: "name another file with -o, or remove it"}
}

// Write writes what write produces to path and replaces an existing file. It is Denied if the folder cannot be
// written. An error of write keeps its kind; errors of the operating system are Unavailable.
func Write(path string, write func(io.Writer) error) error {
	return writeTo(disk.System{}, path, write)
}

func writeTo(d disk.Disk, path string, write func(io.Writer) error) error {
	f, err := create(d, path, 0o666)
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
func WriteBytes(path string, b []byte) error { return writeBytes(disk.System{}, path, b) }

func writeBytes(d disk.Disk, path string, b []byte) error {
	return writeTo(d, path, func(w io.Writer) error {
		_, err := w.Write(b)
		return err
	})
}
