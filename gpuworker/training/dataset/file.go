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

// OpenFile opens a file of rows. Close it after the last row.
func OpenFile(path string) (*File, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &fault.Error{Kind: fault.Invalid, Err: fault.New(fault.Invalid, "there is no dataset %s", path), Remedy: "name the file of rows; a relative path is relative to the folder in which this is run"}
	case err != nil:
		return nil, fault.WithKind(fault.Invalid, err, "open the dataset")
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fault.New(fault.Invalid, "%s is no regular file", path)
	}
	if err != nil {
		return nil, errors.Join(fault.WithKind(fault.Invalid, err, "open the dataset"), f.Close())
	}
	return &File{file: f, size: info.Size()}, nil
}

// ReadAt reads from the file.
func (f *File) ReadAt(p []byte, offset int64) (int, error) { return f.file.ReadAt(p, offset) }

// Size is the file's size when it was opened.
func (f *File) Size() int64 { return f.size }

// Name is the file's path.
func (f *File) Name() string { return f.file.Name() }

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }
