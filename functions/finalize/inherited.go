package finalize

import (
	"context"
	"io"
	"strings"

	"rollout/shared/blob"
	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/result"
	"rollout/shared/shardtable"
)

// inheritedRows writes a shard of which a child asks nothing again: its rows in the
// files of the parent. The child's plan has counted them. If they are gone, the
// shard's items fail.
func (w *writer) inheritedRows(ctx context.Context, n int, in shardtable.Inherited) error {
	outputs, err := w.openPart(ctx, record.CompletionsFile, in.OutputAt, in.Outputs)
	if err != nil {
		return w.orLost(ctx, n, in, err)
	}
	defer outputs.Close()
	errs, err := w.openPart(ctx, record.ErrorsFile, in.ErrorAt, in.Errors)
	if err != nil {
		return w.orLost(ctx, n, in, err)
	}
	defer errs.Close()
	if err := w.copyPart(w.outputs, outputs, in.Outputs); err != nil {
		return err
	}
	if err := w.copyPart(w.errs, errs, in.Errors); err != nil {
		return err
	}
	w.kept.ok += int(in.OK)
	w.kept.failed += int(in.Failed)
	return nil
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

// copyPart appends a part of the parent's files. One that ends early is Corrupt.
func (w *writer) copyPart(to io.Writer, r io.Reader, length uint64) error {
	n, err := io.CopyBuffer(onlyWriter{to}, io.LimitReader(r, int64(length)), w.buf)
	if err == nil && n < int64(length) {
		return fault.New(fault.Corrupt, "the files of run %s are shorter than it wrote them: restore them from a backup",
			w.manifest.Parent.Run)
	}
	return err
}

// orLost writes the error rows of a shard if err means that the parent's files are
// gone, and returns any other error.
func (w *writer) orLost(ctx context.Context, n int, in shardtable.Inherited, err error) error {
	if fault.Is(err, fault.NotFound) {
		return w.lostRows(ctx, n, in)
	}
	return err
}

// lostRows writes error rows for the items of a shard whose rows were in the files of
// the parent, which are gone.
func (w *writer) lostRows(ctx context.Context, n int, in shardtable.Inherited) error {
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
		if err := w.fail(w.failure(l, why)); err != nil {
			return err
		}
	}
	w.kept.failed += in.Items()
	w.totals.lost += int(in.OK)
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

// addKept adds the items of a child's kept shards, as its plan counts them.
func (t *totals) addKept(kept shard.Counts) {
	t.counts.Add(kept)
	if t.lost > 0 {
		t.counts.Add(shard.Counts{OK: -t.lost, Kept: -t.lost, Failed: t.lost,
			ByClass: map[string]int{string(fault.Storage): t.lost}})
	}
}
