// Package results copies the output of an ended run from the bucket to local files.
//
// It reads one pinned version of each object, continues where a connection broke, and checks the number of rows against
// the run's summary. It never overwrites a file, interprets a row's content or changes a run.
package results

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"rollout/scripts/rollout/outfile"
	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/figures"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/retry"
)

// Files lists the output of an ended run.
type Files struct {
	Summary record.Summary
	Objects []blob.Info // objects directly under runs/<run>/, and those of guidanceFolder, sorted by name
}

const (
	// maxObjects limits the objects that are listed in a run's folder, and pageObjects those that are listed at once.
	maxObjects  = 100_000
	pageObjects = 1000

	// guidanceFolder has the steps of a rollout's guidance.
	guidanceFolder = "guidance/"
)

// Load returns the files of a run. It is NotFound without a summary, which every run writes last.
func Load(ctx context.Context, blobs blob.Store, id identity.RunID) (Files, error) {
	var f Files
	if err := input.ReadJSON(ctx, blobs, record.OutputKey(id, record.SummaryFile), &f.Summary); err != nil {
		return f, err
	}
	after := ""
	for range maxObjects / pageObjects {
		page, err := blobs.List(ctx, record.OutputKey(id, ""), after, pageObjects)
		if err != nil {
			return f, fault.Wrap(err, "list the files of run %s", id)
		}
		if len(page) == 0 {
			break
		}
		for _, info := range page {
			if name := f.Name(info); !strings.Contains(name, "/") ||
				strings.HasPrefix(name, guidanceFolder) && filepath.IsLocal(filepath.FromSlash(name)) {
				f.Objects = append(f.Objects, info)
			}
		}
		after = page[len(page)-1].Key
	}
	return f, nil
}

// Name returns the object's file name, with slashes between folders: its key without runs/<run>/.
func (f Files) Name(info blob.Info) string {
	return info.Key[len(record.OutputKey(f.Summary.Run, "")):]
}

// Object returns the object of that name, or NotFound.
func (f Files) Object(name string) (blob.Info, error) {
	for _, info := range f.Objects {
		if f.Name(info) == name {
			return info, nil
		}
	}
	return blob.Info{}, fault.New(fault.NotFound, "run %s has no %s", f.Summary.Run, name)
}

// rows returns how many rows the named file must have according to the summary. It returns false for a file whose rows
// are not counted there.
func (f Files) rows(name string) (uint64, bool) {
	switch {
	case name == record.CompletionsFile && f.Summary.Training == nil:
		return f.Summary.Completed, true
	case name == record.ErrorsFile && f.Summary.Training == nil:
		return f.Summary.Failed, true
	}
	return 0, false
}

// Save copies an object to a new file at path, which appears complete or not at all. The bytes pass through the writer
// that wrap returns, so that the caller can show progress. An existing file is Invalid.
func (f Files) Save(
	ctx context.Context, blobs blob.Store, info blob.Info, path string, wrap func(io.Writer) io.Writer,
) error {
	if err := CheckNotExists(path); err != nil {
		return err
	}
	temp, err := outfile.Create(path)
	if err != nil {
		return unwritable(err)
	}
	if err := f.Copy(ctx, blobs, info, wrap(temp)); err != nil {
		return temp.Discard(err)
	}
	return temp.CloseAndRenameNew()
}

// CheckNotExists returns Invalid if anything exists at path, or if that cannot be determined.
func CheckNotExists(path string) error {
	_, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return unwritable(err)
	}
	return outfile.Exists(path)
}

func unwritable(err error) error {
	return &fault.Error{Kind: fault.Invalid, Op: "write the results", Err: err,
		Remedy: "name a writable path with --output"}
}

// Copy writes the bytes of an object to w. If the number of rows differs from the summary, it returns Corrupt after
// writing them.
func (f Files) Copy(ctx context.Context, blobs blob.Store, info blob.Info, w io.Writer) error {
	counted := &lineCounter{w: w}
	if err := copyObject(ctx, blobs, info, counted); err != nil {
		return err
	}
	if want, ok := f.rows(f.Name(info)); ok && counted.n != want {
		return &fault.Error{
			Kind: fault.Corrupt,
			Err: fmt.Errorf("%s has %s, but the run's summary counts %s", info.Key,
				figures.Of(counted.n, "row"), figures.Count(want)),
			Remedy: "one of the two was changed after the run: restore its older version from the bucket",
		}
	}
	return nil
}

// copyObject writes one version of an object to w. It continues after retriable errors as long as each round makes
// progress.
func copyObject(ctx context.Context, blobs blob.Store, info blob.Info, w io.Writer) error {
	for at := int64(0); at < info.Size; {
		before := at
		err := retry.Policy{}.Do(ctx, func(int) error {
			n, err := copyFrom(ctx, blobs, info, at, w)
			at += n
			return err
		})
		if err != nil && (at == before || !fault.Retriable(err)) {
			return err
		}
	}
	return nil
}

// copyFrom writes the rest of an object from offset at, and returns how many bytes it wrote.
func copyFrom(ctx context.Context, blobs blob.Store, info blob.Info, at int64, w io.Writer) (int64, error) {
	if at == info.Size {
		return 0, nil
	}
	r, _, err := blobs.Get(ctx, info.Key, blob.GetOptions{Version: info.Version, Offset: at})
	if err != nil {
		return 0, fault.Wrap(err, "read %s", info.Key)
	}
	defer r.Close() // opened for reading: closing loses nothing
	out := &errorWriter{w: w}
	n, err := io.Copy(out, r)
	switch {
	case out.err != nil: // Exhausted: reading the bucket again would not help
		return n, fault.WithKind(fault.Exhausted, out.err, "write %s", info.Key)
	case err != nil:
		return n, fault.Wrap(err, "read %s", info.Key)
	case at+n != info.Size:
		return n, fault.New(fault.Unavailable, "read %s: the connection ended after %d of %d bytes",
			info.Key, at+n, info.Size)
	}
	return n, nil
}

// errorWriter remembers its last error, so that a failed write can be told from a failed read.
type errorWriter struct {
	w   io.Writer
	err error
}

func (w *errorWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.err = err
	return n, err
}

// lineCounter counts the lines that are written through it.
type lineCounter struct {
	w io.Writer
	n uint64
}

func (l *lineCounter) Write(p []byte) (int, error) {
	n, err := l.w.Write(p)
	l.n += uint64(bytes.Count(p[:n], []byte("\n")))
	return n, err
}
