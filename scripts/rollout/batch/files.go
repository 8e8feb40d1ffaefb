package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"rollout/shared/blob"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
)

// checkFiles refuses files that the run did not start with, and files that have changed since: the run would answer the
// former lines. It compares base names, because the batch may be started from another folder.
func (b Batch) checkFiles(ctx context.Context, m record.Manifest) error {
	known := map[string][]record.Input{}
	for in, err := range input.NewInputs(b.Local.Ports.Blobs).All(ctx, m) {
		if err != nil {
			return err
		}
		base := filepath.Base(in.Label())
		known[base] = append(known[base], in)
	}
	for _, f := range b.Files {
		copies := known[filepath.Base(f)]
		if len(copies) == 0 {
			return &fault.Error{Kind: fault.Invalid, Op: fmt.Sprintf("run %s started without the file %s", b.Run, f),
				Remedy: "exclude the file from input.glob, or configure another output.dir for a new run"}
		}
		changed := true
		for _, in := range copies {
			same, err := b.isCopy(ctx, f, in)
			if err != nil {
				return err
			}
			changed = changed && !same
		}
		if changed {
			return &fault.Error{Kind: fault.Invalid,
				Op:     fmt.Sprintf("the file %s has changed since run %s started, which answers its former lines", f, b.Run),
				Remedy: "configure another output.dir for a new run, or put the former file back to continue"}
		}
	}
	return nil
}

// isCopy reports whether the file has the bytes of the input, which is its copy in the bucket. Equal sizes and times
// are taken for equal bytes. A copy that is gone can't be compared, and neither can a file that is gone.
func (b Batch) isCopy(ctx context.Context, file string, in record.Input) (bool, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, fault.WithKind(fault.Invalid, err, "compare with the run")
	}
	defer f.Close() // opened for reading: closing loses nothing
	stat, err := f.Stat()
	if err != nil {
		return false, fault.WithKind(fault.Invalid, err, "compare with the run")
	}
	if stat.Size() != in.Size {
		return false, nil
	}
	r, info, err := b.Local.Ports.Blobs.Get(ctx, in.Key, blob.GetOptions{Version: in.Version})
	if fault.Is(err, fault.NotFound) {
		return true, nil
	}
	if err != nil {
		return false, fault.Wrap(err, "compare %s with the run", file)
	}
	defer r.Close() // opened for reading: closing loses nothing
	if info.ModTime.Unix() == stat.ModTime().Unix() {
		return true, nil
	}
	same, err := equal(f, r)
	return same, fault.Wrap(err, "compare %s with the run", file)
}

// equal reports whether both readers have the same bytes.
func equal(a, b io.Reader) (bool, error) {
	const part = 64 << 10
	bufA, bufB := make([]byte, part), make([]byte, part)
	for {
		n, errA := io.ReadFull(a, bufA)
		m, errB := io.ReadFull(b, bufB)
		if !bytes.Equal(bufA[:n], bufB[:m]) {
			return false, nil
		}
		for _, err := range []error{errA, errB} {
			if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
				return false, err
			}
		}
		if errA != nil || errB != nil { // both have ended: they had the same length
			return true, nil
		}
	}
}
