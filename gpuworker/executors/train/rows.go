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
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/input"
)

// rows copies the dataset to a file in the folder and opens it: rows are read in
// random order, several times.
func (t *execution) rows(ctx context.Context, folder string) (dataset.Source, func() error, error) {
	path := filepath.Join(folder, "rows.jsonl")
	if err := t.download(ctx, path); err != nil {
		return nil, nil, err
	}
	f, err := dataset.OpenFile(path)
	if err != nil {
		return nil, nil, diskFault(err)
	}
	return namedFile{f, t.job.Dataset.Name}, f.Close, nil
}

// namedFile is a dataset file under the name that the user gave.
type namedFile struct {
	*dataset.File
	name string
}

func (n namedFile) Name() string { return n.name }

func (t *execution) download(ctx context.Context, path string) (err error) {
	d := t.job.Dataset
	open := input.OpenPinned
	if d.Digest != "" { // which is verified below
		open = input.OpenPlanned
	}
	r, err := open(ctx, t.cfg.Blobs, d.Key, blob.GetOptions{Version: d.Version})
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return diskFault(err)
	}
	defer func() { err = errors.Join(err, diskFault(f.Close())) }()
	digest := identity.NewHasher()
	n, err := io.Copy(io.MultiWriter(f, digest), &storeReader{r: r})
	var read *readError
	switch {
	case errors.As(err, &read):
		return fault.Wrap(read.err, "read %s", d.Name)
	case err != nil:
		return diskFault(err)
	case d.Digest != "" && digest.Sum().String() != d.Digest:
		return input.Changed(d.Key)
	case n != d.Size:
		return fault.New(fault.Unavailable, "read %s: got %d of %d bytes", d.Name, n, d.Size)
	}
	return nil
}

// storeReader wraps the errors of a reader in readError, to tell them from those
// of the writer.
type storeReader struct{ r io.Reader }

type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }

func (f *storeReader) Read(b []byte) (int, error) {
	n, err := f.r.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &readError{err}
	}
	return n, err
}

// newScratchFolder makes a folder for this process in dir. It removes the
// folders of processes on this machine that have ended.
func newScratchFolder(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", diskFault(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", diskFault(err)
	}
	for _, e := range entries {
		pid, _, _ := strings.Cut(e.Name(), "-")
		if n, err := strconv.Atoi(pid); err == nil && n > 0 && errors.Is(syscall.Kill(n, 0), syscall.ESRCH) {
			_ = os.RemoveAll(filepath.Join(dir, e.Name())) // another worker may remove it too
		}
	}
	path := filepath.Join(dir, strconv.Itoa(os.Getpid())+"-"+ulid.Make().String())
	return path, diskFault(os.Mkdir(path, 0o755))
}

// diskFault gives an error of the local disk its kind.
func diskFault(err error) error {
	const op = "write files of a training"
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return &fault.Error{Kind: fault.Exhausted, Op: op, Err: err, Remedy: "free some space on that disk"}
	case errors.Is(err, os.ErrPermission):
		return fault.WithKind(fault.Denied, err, op)
	}
	return fault.WithKind(fault.Unavailable, err, op)
}
