// Package results brings what a run wrote out of the bucket: whole, and with as
// many rows as its summary says.
//
// It reads one version of each object, goes on where a connection broke, and
// never overwrites a file. It knows no row's content and steers no run.
package results

import (
	"bytes"
	"context"
	"io"
	"strings"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/retry"
)

// Files are what a run that has ended wrote.
type Files struct {
	Summary record.Summary
	Objects []blob.Info // directly under runs/<run>/, by name
}

// maxObjects bounds what a run's folder is looked for.
const maxObjects = 1000

// Load returns the files of a run. Without a summary, which is written last, that
// is NotFound.
func Load(ctx context.Context, blobs blob.Store, id identity.RunID) (Files, error) {
	var f Files
	if err := input.ReadJSON(ctx, blobs, record.OutputKey(id, record.SummaryFile), &f.Summary); err != nil {
		return f, err
	}
	all, err := blobs.List(ctx, record.OutputKey(id, ""), "", maxObjects)
	if err != nil {
		return f, fault.Wrap(err, "list the files of run %s", id)
	}
	for _, info := range all {
		if !strings.Contains(f.Name(info), "/") {
			f.Objects = append(f.Objects, info)
		}
	}
	return f, nil
}

// Name is what an object is called in the run's folder.
func (f Files) Name(info blob.Info) string {
	return info.Key[len(record.OutputKey(f.Summary.Run, "")):]
}

// Object returns the object of that name; NotFound if there is none.
func (f Files) Object(name string) (blob.Info, error) {
	for _, info := range f.Objects {
		if f.Name(info) == name {
			return info, nil
		}
	}
	return blob.Info{}, fault.New(fault.NotFound, "run %s has no %s", f.Summary.Run, name)
}

// rows is how many rows an object must have; false if it is none of rows.
func (f Files) rows(name string) (uint64, bool) {
	switch {
	case name == record.CompletionsFile && f.Summary.Training == nil:
		return f.Summary.Completed, true
	case name == record.ErrorsFile && f.Summary.Training == nil:
		return f.Summary.Failed, true
	}
	return 0, false
}

// Copy writes the bytes of an object to w. Other rows than the summary counts
// are Corrupt, after they were written.
func (f Files) Copy(ctx context.Context, blobs blob.Store, info blob.Info, w io.Writer) error {
	counted := &lines{w: w}
	if err := copyObject(ctx, blobs, info, counted); err != nil {
		return err
	}
	if want, ok := f.rows(f.Name(info)); ok && counted.n != want {
		return &fault.Error{Kind: fault.Corrupt, Err: fault.New(fault.Corrupt, "%s has %d rows, and the run's summary counts %d", info.Key, counted.n, want),
			Remedy: "somebody changed one of the two: their older versions are in the bucket, if it keeps any"}
	}
	return nil
}

// copyObject writes one version of an object to w, going on where reading it
// failed for a while.
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

// copyFrom writes the rest of an object from an offset.
func copyFrom(ctx context.Context, blobs blob.Store, info blob.Info, at int64, w io.Writer) (int64, error) {
	if at == info.Size {
		return 0, nil
	}
	r, _, err := blobs.Get(ctx, info.Key, blob.GetOptions{Version: info.Version, Offset: at})
	if err != nil {
		return 0, fault.Wrap(err, "read %s", info.Key)
	}
	defer r.Close() // read only: nothing can be lost
	out := &writer{w: w}
	n, err := io.Copy(out, r)
	switch {
	case out.err != nil:
		return n, fault.WithKind(fault.Exhausted, out.err, "write %s", info.Key) // asking the bucket again would not help
	case err != nil:
		return n, fault.Wrap(err, "read %s", info.Key)
	case at+n != info.Size:
		return n, fault.New(fault.Unavailable, "read %s: the connection ended after %d of %d bytes", info.Key, at+n, info.Size)
	}
	return n, nil
}

// writer keeps its error, which is not the reader's.
type writer struct {
	w   io.Writer
	err error
}

func (w *writer) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.err = err
	return n, err
}

// lines counts the lines that go through it.
type lines struct {
	w io.Writer
	n uint64
}

func (l *lines) Write(p []byte) (int, error) {
	n, err := l.w.Write(p)
	l.n += uint64(bytes.Count(p[:n], []byte("\n")))
	return n, err
}
