package train

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/oklog/ulid/v2"

	"rollout/gpuworker/training/dataset"
	"rollout/shared/fault"
	"rollout/shared/input"
)

// rows copies the dataset to a file in the folder: rows are read in random
// order, again and again.
func (t *execution) rows(ctx context.Context, folder string) (dataset.Source, func() error, error) {
	path := filepath.Join(folder, "rows.jsonl")
	if err := t.download(ctx, path); err != nil {
		return nil, nil, err
	}
	f, err := dataset.OpenFile(path)
	if err != nil {
		return nil, nil, unwritable(err)
	}
	return named{f, t.job.Dataset.Name}, f.Close, nil
}

// named is a file under the name that its users know.
type named struct {
	*dataset.File
	name string
}

func (n named) Name() string { return n.name }

func (t *execution) download(ctx context.Context, path string) (err error) {
	d := t.job.Dataset
	r, err := input.OpenPinned(ctx, t.cfg.Blobs, d.Key, d.Version, 0, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return unwritable(err)
	}
	defer func() { err = errors.Join(err, unwritable(f.Close())) }()
	n, err := io.Copy(f, &fromStore{r: r})
	var lost *readError
	switch {
	case errors.As(err, &lost):
		return fault.Wrap(lost.err, "read %s", d.Name)
	case err != nil:
		return unwritable(err)
	case n != d.Size:
		return fault.New(fault.Unavailable, "read %s: %d of %d bytes came", d.Name, n, d.Size)
	}
	return nil
}

// fromStore marks the errors of a reader, so that they are told from those of
// the writer.
type fromStore struct{ r io.Reader }

type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }

func (f *fromStore) Read(b []byte) (int, error) {
	n, err := f.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &readError{err}
	}
	return n, err
}

// newScratch makes a folder of this process in dir, and removes those of
// processes of this machine that are gone.
func newScratch(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", unwritable(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", unwritable(err)
	}
	for _, e := range entries {
		pid, _, _ := strings.Cut(e.Name(), "-")
		if n, err := strconv.Atoi(pid); err == nil && n > 0 && errors.Is(syscall.Kill(n, 0), syscall.ESRCH) {
			_ = os.RemoveAll(filepath.Join(dir, e.Name())) // another worker may do the same
		}
	}
	path := filepath.Join(dir, strconv.Itoa(os.Getpid())+"-"+ulid.Make().String())
	return path, unwritable(os.Mkdir(path, 0o755))
}

// unwritable gives an error of the local disk its kind.
func unwritable(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &fault.Error{Kind: fault.Exhausted, Op: "keep files of a training", Err: err, Remedy: "free some space on that disk"}
	case errors.Is(err, os.ErrPermission):
		return fault.WithKind(fault.Denied, err, "keep files of a training")
	}
	return fault.WithKind(fault.Unavailable, err, "keep files of a training")
}
