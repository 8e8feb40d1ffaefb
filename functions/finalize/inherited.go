package finalize

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"strings"

	"rollout/shared/blob"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/result"
	"rollout/shared/shardtable"
)

// inheritedRows writes a shard of which a child asks nothing again: its rows in the
// files of the parent. If they are gone, the shard's items fail.
func (w *writer) inheritedRows(ctx context.Context, n int, in shardtable.Inherited) error {
	outputs, err := w.openPart(ctx, record.CompletionsFile, in.OutputAt, in.Outputs)
	if err != nil {
		return w.orLost(ctx, n, err)
	}
	defer outputs.Close()
	errs, err := w.openPart(ctx, record.ErrorsFile, in.ErrorAt, in.Errors)
	if err != nil {
		return w.orLost(ctx, n, err)
	}
	defer errs.Close()
	if err := w.copyOutputs(outputs, in); err != nil {
		return err
	}
	w.totals.counts.Add(shard.Counts{OK: int(in.OK), Kept: int(in.OK)})
	return w.copyErrors(errs, in)
}

// openPart opens a part of a file of the child's parent; an empty reader for an empty
// part.
func (w *writer) openPart(ctx context.Context, file string, at, length uint64) (io.ReadCloser, error) {
	if length == 0 {
		return io.NopCloser(strings.NewReader("")), nil
	}
	key := record.OutputKey(w.manifest.Parent.Run, file)
	r, _, err := w.Blobs.Get(ctx, key, blob.GetOptions{Offset: int64(at), Length: int64(length)})
	return r, fault.Wrap(err, "read %s", key)
}

// copyOutputs appends a shard's part of the parent's completions.jsonl. One that is
// not as many whole rows as the shard has there is Corrupt.
func (w *writer) copyOutputs(r io.Reader, in shardtable.Inherited) error {
	var rows lineCount
	part := io.TeeReader(io.LimitReader(r, int64(in.Outputs)), &rows)
	n, err := io.CopyBuffer(onlyWriter{w.outputs}, part, w.buf)
	if err == nil && (n < int64(in.Outputs) || n > 0 && rows.last != '\n' || rows.lines != int(in.OK)) {
		return w.changedFiles()
	}
	return err
}

// lineCount counts the lines that are written to it.
type lineCount struct {
	lines int
	last  byte // that was written
}

// Write implements io.Writer.
func (c *lineCount) Write(b []byte) (int, error) {
	c.lines += bytes.Count(b, []byte{'\n'})
	if len(b) > 0 {
		c.last = b[len(b)-1]
	}
	return len(b), nil
}

// copyErrors appends a shard's part of the parent's errors.jsonl, and counts its rows.
// One that is not the rows of as many items of the shard as fail there is Corrupt.
func (w *writer) copyErrors(r io.Reader, in shardtable.Inherited) error {
	rows := bufio.NewReader(io.LimitReader(r, int64(in.Errors)))
	failed, end := uint32(0), in.FirstItem+uint64(in.Items())
	for left := in.Errors; left > 0; failed++ {
		row, err := rows.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		f, ok := dialect.ReadFailure(dialect.Name(w.manifest.Dialect), row)
		if err != nil || !ok || f.Place.Item < in.FirstItem || f.Place.Item >= end {
			return w.changedFiles()
		}
		if _, err := w.errs.Write(row); err != nil {
			return err
		}
		w.totals.count(f.Class)
		left -= uint64(len(row))
	}
	if failed != in.Failed {
		return w.changedFiles()
	}
	return nil
}

func (w *writer) changedFiles() error {
	return fault.New(fault.Corrupt, "the files of run %s are not those that it wrote: restore them from a backup",
		w.manifest.Parent.Run)
}

// orLost writes the error rows of a shard if err means that the parent's files are
// gone, and returns any other error.
func (w *writer) orLost(ctx context.Context, n int, err error) error {
	if fault.Is(err, fault.NotFound) {
		return w.lostRows(ctx, n)
	}
	return err
}

// lostRows writes error rows for the items of a shard whose rows were in the files of
// the parent, which are gone.
func (w *writer) lostRows(ctx context.Context, n int) error {
	e, row, cut, err := w.cut(ctx, n)
	if err != nil {
		return err
	}
	lines, err := w.lines(ctx, e, row, cut)
	if err != nil {
		return err
	}
	why := cause{fault.Storage, "the files of run " + string(w.manifest.Parent.Run) + ", which had its row, are gone"}
	for _, l := range lines {
		w.totals.count(why.class)
		if err := w.fail(w.failure(l, why)); err != nil {
			return err
		}
	}
	return nil
}

// keptRows returns the rows that a child keeps of a shard of which it asks some items
// again, and that it has no row of its own for; none for a run without a parent. Rows
// that are gone are asked for, or fail, as those of the other items.
func (w *writer) keptRows(ctx context.Context, n int) (rows []result.Row, c shard.Counts, err error) {
	if w.manifest.Parent == nil {
		return nil, c, nil
	}
	in, err := w.index.Inherited(ctx, w.manifest.Run, n)
	if err != nil {
		return nil, c, err
	}
	rows, c, err = result.ReadKept(ctx, w.Blobs, w.manifest, in)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt) {
		return nil, shard.Counts{}, nil
	}
	return rows, c, err
}
