package finalize

import (
	"context"
	"errors"

	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/result"
	"rollout/shared/shardtable"
)

// sealed writes a shard that the end of its run sealed: the rows of its
// checkpoint, and an error line for every other item.
func (w *writer) sealed(ctx context.Context, n int, d shard.Doc) error {
	var rows []result.Row
	if d.Checkpoint != nil {
		var err error
		rows, err = result.ReadCheckpoint(ctx, w.Blobs, *d.Checkpoint, d.Items)
		if errors.Is(err, result.ErrLost) {
			return w.lost(ctx, n, d, err)
		}
		if err != nil {
			return err
		}
	} else {
		var kept shard.Counts
		var err error
		if rows, kept, err = w.keptRows(ctx, n); err != nil {
			return err
		}
		d.Counts.Kept, d.Counts.KeptFailed = kept.Kept, kept.KeptFailed
	}
	return w.unanswered(ctx, n, rows, d, cause{d.Sealed, w.message()})
}

// cause is why items have no answer.
type cause struct {
	class   fault.Class
	message string
}

// unanswered writes the given rows, and error lines for the items without a row.
func (w *writer) unanswered(ctx context.Context, n int, rows []result.Row, d shard.Doc, why cause) error {
	e, row, cut, err := w.cut(ctx, n)
	if err != nil {
		return err
	}
	lines, err := w.lines(ctx, e, row, cut)
	if err != nil {
		return err
	}
	d.Counts.OK, d.Counts.Failed, d.Counts.ByClass = 0, 0, nil // the loop below counts each item
	w.totals.add(d)
	for i, l := range lines {
		switch {
		case len(rows) > 0 && rows[0].Item == i:
			w.totals.count(rows[0].Class)
			err = w.row(rows[0])
			rows = rows[1:]
		case l.Original != nil:
			w.totals.count("")
			err = w.copied(ctx, l.Place, l.Bytes, l.Original.Item)
		default:
			w.totals.count(why.class)
			err = w.fail(w.failure(l, why))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) fail(f dialect.Failure) error {
	_, err := w.errs.Write(dialect.AppendError(nil, dialect.Name(w.manifest.Dialect), f))
	return err
}

func (w *writer) row(r result.Row) error {
	to := w.outputs
	if r.Class != "" {
		to = w.errs
	}
	_, err := to.Write(r.Bytes)
	return err
}

// lines reads a shard's lines. If the input is gone or changed, it returns lines
// without bytes that have only an item index and a file.
func (w *writer) lines(ctx context.Context, e record.IndexEntry, row int, cut shardtable.Row) ([]input.Line, error) {
	s, err := w.index.LoadShard(ctx, w.manifest, e.Range, row)
	if err == nil {
		return s.Lines, nil
	}
	if !fault.Is(err, fault.NotFound) && fault.ClassOf(err) != fault.InputChanged {
		return nil, err
	}
	file, err := w.index.InputName(ctx, w.manifest, e.Input)
	if err != nil {
		return nil, err
	}
	lines := make([]input.Line, cut.Items)
	for i := range lines {
		item := e.FirstItem + cut.FirstItem + uint64(i)
		lines[i].Place = dialect.Place{Item: item, File: file}
	}
	return lines, nil
}

// failure is the failure of an unanswered item, under its own id if it is known.
func (w *writer) failure(l input.Line, why cause) dialect.Failure {
	f := dialect.Failure{Place: l.Place, Class: why.class, Message: why.message}
	line := l.Bytes
	if line == nil {
		line = l.Head
	}
	if line == nil {
		return f
	}
	it, err := dialect.Parse(dialect.Name(w.manifest.Dialect), line)
	id := ""
	if err == nil {
		id = it.RowID(it.ItemID(w.model, l.Place.Item))
	}
	return it.Failure(id, f.Place, f.Class, f.Message)
}

// message says why items are unanswered.
func (w *writer) message() string {
	if w.state.Message != "" {
		return "the run ended first: " + w.state.Message
	}
	return "the run ended first (" + string(w.state.Reason) + ")"
}
