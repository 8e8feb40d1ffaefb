package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"rollout/shared/blob"
	"rollout/shared/fault"
)

// Save writes an object into a new file, which is there whole or not at all.
// through may look at what is written. A file that is there already is Invalid.
func (f Files) Save(ctx context.Context, blobs blob.Store, info blob.Info, path string, through func(io.Writer) io.Writer) (err error) {
	if err := MustBeNew(path); err != nil {
		return err
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".rollout-*")
	if err != nil {
		return unwritable(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temp.Name()))
		}
	}()
	err = f.Copy(ctx, blobs, info, through(temp))
	if err == nil {
		err = fault.As(fault.Unavailable, temp.Sync(), "write %s", path)
	}
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	if err := os.Chmod(temp.Name(), 0o644); err != nil { // as a file that is made in the ordinary way
		return unwritable(err)
	}
	if err := os.Rename(temp.Name(), path); err != nil {
		return unwritable(err)
	}
	return nil
}

// MustBeNew refuses a path where something is.
func MustBeNew(path string) error {
	_, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return unwritable(err)
	}
	return &fault.Error{Kind: fault.Invalid, Err: fmt.Errorf("%s is there already", path), Remedy: "name another place with --output, or remove it"}
}

func unwritable(err error) error {
	return &fault.Error{Kind: fault.Invalid, Op: "write the results", Err: err, Remedy: "name a place that can be written with --output"}
}
