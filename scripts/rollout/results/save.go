package results

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"rollout/scripts/rollout/outfile"
	"rollout/shared/blob"
	"rollout/shared/fault"
)

// Save writes an object into a new file, which is there whole or not at all.
// through may look at what is written. A file that is there already is Invalid.
func (f Files) Save(ctx context.Context, blobs blob.Store, info blob.Info, path string, through func(io.Writer) io.Writer) error {
	if err := CheckNotExists(path); err != nil {
		return err
	}
	temp, err := outfile.Create(path)
	if err != nil {
		return unwritable(err)
	}
	if err := f.Copy(ctx, blobs, info, through(temp)); err != nil {
		return temp.Discard(err)
	}
	return temp.CloseAndRename()
}

// CheckNotExists refuses a path where something is.
func CheckNotExists(path string) error {
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
