package dataset

import (
	"errors"
	"io/fs"
	"os"

	"rollout/shared/fault"
)

// File is a Source on disk.
type File struct {
	file *os.File
	size int64
}

// OpenFile opens a file of rows. The caller closes it after reading the last row.
// Faults are Invalid.
func OpenFile(path string) (*File, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &fault.Error{
			Kind: fault.Invalid, Err: fault.New(fault.Invalid, "dataset %s does not exist", path),
			Remedy: "set the path of the file of rows; a relative path starts at the working directory",
		}
	case err != nil:
		return nil, fault.WithKind(fault.Invalid, err, "open the dataset")
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fault.New(fault.Invalid, "%s is not a regular file", path)
	}
	if err != nil {
		return nil, errors.Join(fault.WithKind(fault.Invalid, err, "open the dataset"), f.Close())
	}
	return &File{file: f, size: info.Size()}, nil
}

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, offset int64) (int, error) { return f.file.ReadAt(p, offset) }

// Size returns the file's size in bytes when it was opened.
func (f *File) Size() int64 { return f.size }

// Name returns the file's path.
func (f *File) Name() string { return f.file.Name() }

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }
