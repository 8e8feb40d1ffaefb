package finalize

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
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
// files of the parent. If they are gone or changed, the shard's items fail.
func (w *writer) inheritedRows(ctx context.Context, n int, in shardtable.Inherited) error {
	err := w.checkParts(ctx, in)
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Corrupt) {
		w.Log.ErrorContext(ctx, "rows of a parent are lost: their items fail", "run", w.manifest.Run, "shard", n,
			"error", err)
		return w.lostRows(ctx, n)
	}
	if err != nil {
		return err
	}
	outputs, err := w.openPart(ctx, record.CompletionsFile, in.OutputAt, in.Outputs)
	if err != nil {
		return err
	}
	defer outputs.Close()
	errs, err := w.openPart(ctx, record.ErrorsFile, in.ErrorAt, in.Errors)
	if err != nil {
		return err
	}
	defer errs.Close()
	if _, err := io.CopyBuffer(onlyWriter{w.outputs}, io.LimitReader(outputs, int64(in.Outputs)), w.buf); err != nil {
		return err
	}
	w.totals.addCounts(shard.Counts{OK: int(in.OK), Kept: int(in.OK), KeptFailed: int(in.Failed)})
	return w.eachError(errs, in, func(row []byte, f dialect.Failure) error {
		w.totals.count(f.Class)
		_, err := w.errs.Write(row)
		return err
	})
}

// checkParts checks the shard's parts of the parent's files before any row of them is
// written: Corrupt, or NotFound, if they are not what the parent wrote.
func (w *writer) checkParts(ctx context.Context, in shardtable.Inherited) error {
	outputs, err := w.openPart(ctx, record.CompletionsFile, in.OutputAt, in.Outputs)
	if err != nil {
		return err
	}
	defer outputs.Close()
	if err := w.checkOutputs(outputs, in); err != nil {
		return err
	}
	errs, err := w.openPart(ctx, record.ErrorsFile, in.ErrorAt, in.Errors)
	if err != nil {
		return err
	}
	defer errs.Close()
	return w.eachError(errs, in, func([]byte, dialect.Failure) error { return nil })
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

// checkOutputs checks a shard's part of the parent's completions.jsonl. One that is
// not as many whole rows as the shard has there is Corrupt.
func (w *writer) checkOutputs(r io.Reader, in shardtable.Inherited) error {
	var rows lineCount
	n, err := io.CopyBuffer(&rows, io.LimitReader(r, int64(in.Outputs)), w.buf)
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

// eachError calls do with each row of a shard's part of the parent's errors.jsonl. One
// that is not the rows of as many items of the shard as fail there is Corrupt.
func (w *writer) eachError(r io.Reader, in shardtable.Inherited, do func([]byte, dialect.Failure) error) error {
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
		if err := do(row, f); err != nil {
			return err
		}
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
	why := cause{fault.Storage, fmt.Sprintf("the files of run %s, which had its row, are gone or changed",
		w.manifest.Parent.Run)}
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
