package finalize

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/result"
)

// indexed writes a committed shard of a run that asks identical requests once.
// b is its result.
func (w *writer) indexed(ctx context.Context, n int, d shard.Doc, b []byte) error {
	ref := *d.Result
	parts, _, err := result.ParseIndex(b, ref.Length, d.Items)
	if err != nil {
		return fault.Wrap(err, "result %s", ref.Key)
	}
	w.originals.current, w.originals.answers = n, answers{parts: parts, bytes: b}
	first, file, err := w.start(ctx, n)
	if err != nil {
		return err
	}
	for i, p := range parts {
		if i%copiesReadahead == 0 && w.segments != nil {
			if err := w.originals.fetch(ctx, w, parts[i:min(i+copiesReadahead, len(parts))]); err != nil {
				return err
			}
		}
		row := b[p.Offset : p.Offset+p.Length]
		switch p.Kind {
		case result.RowCopy:
			place := dialect.Place{Item: first + uint64(i), File: file, Line: p.Line}
			err = w.copied(ctx, place, row[:len(row)-1], p.Original)
		default:
			err = w.row(result.Row{Class: p.Class, Bytes: row})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// start returns a shard's first item, and the name of its file.
func (w *writer) start(ctx context.Context, n int) (item uint64, file string, err error) {
	e, row, err := w.index.FindShard(ctx, w.manifest.Run, n)
	if err != nil {
		return 0, "", err
	}
	cuts, err := w.index.Rows(ctx, w.manifest.Run, e, row, 1)
	if err != nil {
		return 0, "", err
	}
	file, err = w.index.InputName(ctx, w.manifest, e.Input)
	return e.FirstItem + cuts[0].FirstItem, file, err
}

// copied writes the row of an item that asks the same as an earlier one, its
// original: the original's answer, or its failure. The caller has counted the
// item as answered.
func (w *writer) copied(ctx context.Context, at dialect.Place, line []byte, original uint64) error {
	w.totals.copies++
	it, err := dialect.Parse(dialect.Name(w.manifest.Dialect), line)
	if err != nil {
		return fault.WithKind(fault.Corrupt, err, "item %d, a copy of item %d", at.Item, original)
	}
	id := it.RowID(it.ItemID(w.model, at.Item))
	a, err := w.originals.find(ctx, w, original)
	if err != nil {
		return fault.Wrap(err, "item %d, the original of item %d", original, at.Item)
	}
	if a.class == "" {
		b, err := dialect.AppendCopy(nil, it, id, a.row)
		if err != nil {
			return fault.Wrap(err, "item %d, a copy of item %d", at.Item, original)
		}
		_, err = w.outputs.Write(b)
		return err
	}
	w.totals.addCounts(shard.Counts{OK: -1})
	w.totals.count(a.class)
	message := w.message()
	switch {
	case a.class == fault.Storage && a.row == nil:
		message = fmt.Sprintf("item %d asks the same, was asked for both, and its answer is lost", original)
	case a.row != nil:
		message = fmt.Sprintf("item %d asks the same, was asked for both, and failed", original)
	}
	return w.fail(it.Failure(id, at, a.class, message))
}

// Bounds of the cache of originals: the items of their shards, the rows, and the
// bytes of the rows.
const (
	maxParts    = 1 << 17
	maxRows     = 1024
	maxRowBytes = 8 << 20
)

// originals finds and caches the answers that copies are made of. An original
// comes before its copies, so its shard is final.
type originals struct {
	lost    map[int]bool // shards whose result is gone or damaged, that the writer has met
	current int          // the shard being written
	answers answers      // of that shard
	shards  map[int]answers
	parts   int // of all shards
	rows    map[uint64]answer
	bytes   int // of all rows
}

// answers are where the rows of a shard's items are.
type answers struct {
	key   string
	parts []result.Part // by item; an item without a row has no length
	class fault.Class   // of the items without a row
	bytes []byte        // of the object, if it is in memory
}

// answer is the outcome of one item: its output row, or its class and its error
// row. The error row is nil if the run ended first.
type answer struct {
	row   []byte
	class fault.Class
}

// find returns the answer of an item, from the cache or its shard.
func (o *originals) find(ctx context.Context, w *writer, item uint64) (answer, error) {
	if a, ok := o.rows[item]; ok {
		return a, nil
	}
	n, at, err := w.locate(ctx, item)
	if err != nil {
		return answer{}, err
	}
	if n == o.current && o.answers.bytes != nil {
		return o.answers.read(ctx, w.Blobs, at)
	}
	if o.lost[n] {
		return answer{class: fault.Storage}, nil
	}
	as, ok := o.shards[n]
	if !ok {
		if as, err = w.answers(ctx, n); err != nil {
			return answer{}, fault.Wrap(err, "shard %d", n)
		}
		o.cacheShard(n, as)
	}
	a, err := as.read(ctx, w.Blobs, at)
	if err == nil {
		o.cacheRow(item, a)
	}
	return a, err
}

// locate returns an item's shard, and its number there.
func (w *writer) locate(ctx context.Context, item uint64) (n, at int, err error) {
	loc, err := w.index.LocateItem(ctx, w.manifest.Run, item)
	return loc.Shard(), int(item - loc.FirstItem()), err
}

// cacheShard caches a shard's answers, and evicts others to make room.
func (o *originals) cacheShard(n int, as answers) {
	if o.shards == nil {
		o.shards = map[int]answers{}
	}
	for other, b := range o.shards {
		if o.parts+len(as.parts)+1 <= maxParts {
			break
		}
		delete(o.shards, other)
		o.parts -= len(b.parts) + 1
	}
	o.shards[n] = as
	o.parts += len(as.parts) + 1
}

// cacheRow caches an item's answer, and evicts others to make room.
func (o *originals) cacheRow(item uint64, a answer) {
	if o.rows == nil {
		o.rows = map[uint64]answer{}
	}
	for other, b := range o.rows {
		if len(o.rows) < maxRows && o.bytes+len(a.row) <= maxRowBytes {
			break
		}
		delete(o.rows, other)
		o.bytes -= len(b.row)
	}
	o.rows[item] = a
	o.bytes += len(a.row)
}

// answers reads where the rows of a shard are.
func (w *writer) answers(ctx context.Context, n int) (answers, error) {
	if w.neverSent(n) {
		return answers{class: w.state.Reason.Class()}, nil
	}
	raw, err := w.Docs.Get(ctx, identity.ShardKey(w.manifest.Run, n))
	if err != nil {
		return answers{}, err
	}
	var d shard.Doc
	if err := json.Unmarshal(raw.Value, &d); err != nil {
		return answers{}, fault.WithKind(fault.Corrupt, err, "decode document %s", raw.Key)
	}
	switch {
	case d.State != shard.Done:
		return answers{}, fault.New(fault.Unavailable, "it is %s, although a later one is done", d.State)
	case d.Result != nil:
		return w.committedAnswers(ctx, n, d)
	case d.Checkpoint != nil:
		as, err := checkpointed(ctx, w.Blobs, d)
		if errors.Is(err, result.ErrLost) {
			return answers{class: fault.Storage}, nil
		}
		return as, err
	}
	return answers{class: d.Sealed}, nil
}

// committedAnswers finds the rows of a shard with a result. A shard that the writer has
// not written itself is checked first: its rows are read without their digest.
func (w *writer) committedAnswers(ctx context.Context, n int, d shard.Doc) (answers, error) {
	as := answers{key: d.Result.Key}
	if n < w.first || n > w.current {
		err := result.Verify(ctx, w.Blobs, *d.Result, make([]byte, copyBuffer))
		if errors.Is(err, result.ErrLost) {
			return answers{class: fault.Storage}, nil
		}
		if err != nil {
			return as, err
		}
	}
	var err error
	as.parts, err = readIndex(ctx, w.Blobs, *d.Result, d.Items)
	return as, err
}

// checkpointed finds the rows of a sealed shard.
func checkpointed(ctx context.Context, blobs blob.Store, d shard.Doc) (answers, error) {
	rows, err := result.ReadCheckpoint(ctx, blobs, *d.Checkpoint, d.Items)
	if err != nil {
		return answers{}, err
	}
	as := answers{key: d.Checkpoint.Key, parts: make([]result.Part, d.Items), class: d.Sealed}
	at := d.Checkpoint.Length
	for i := len(rows) - 1; i >= 0; i-- { // the rows end where the object does
		at -= int64(len(rows[i].Bytes))
		as.parts[rows[i].Item] = result.Part{Class: rows[i].Class, Offset: at, Length: int64(len(rows[i].Bytes))}
	}
	return as, nil
}

// usualIndex is how many bytes of a result's end are read for its index. Most
// indexes are shorter.
const usualIndex = 4 << 10

// readIndex reads the index at the end of a result.
func readIndex(ctx context.Context, blobs blob.Store, ref shard.Ref, items int) ([]result.Part, error) {
	for want := min(usualIndex, ref.Length); ; {
		tail, err := input.ReadPart(ctx, blobs, ref.Key, ref.Length-want, want)
		if err != nil {
			return nil, err
		}
		parts, need, err := result.ParseIndex(tail, ref.Length, items)
		if err != nil || need == 0 {
			return parts, fault.Wrap(err, "result %s", ref.Key)
		}
		want = int64(need)
	}
}

// read reads the row of the item at that place in the shard.
func (as answers) read(ctx context.Context, blobs blob.Store, at int) (answer, error) {
	if at >= len(as.parts) || as.parts[at].Length == 0 {
		return answer{class: as.class}, nil
	}
	p := as.parts[at]
	if as.bytes != nil {
		return answer{as.bytes[p.Offset : p.Offset+p.Length], p.Class}, nil
	}
	row, err := input.ReadPart(ctx, blobs, as.key, p.Offset, p.Length)
	return answer{row, p.Class}, err
}
