package finalize

import (
	"context"
	"encoding/json"
	"io"

	"rollout/shared/blob"
	"rollout/shared/cuttable"
	"rollout/shared/dialect"
	"rollout/shared/document"
	"rollout/shared/engine/identity"
	"rollout/shared/engine/run"
	"rollout/shared/engine/shard"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/result"
)

// copyBuffer is how much of a result is read at once.
const copyBuffer = 256 << 10

// docsAtOnce is how many shard documents are read at once.
const docsAtOnce = 256

// writer is one finalization under way.
type writer struct {
	*Finalizer
	manifest  record.Manifest
	state     run.State
	next      func(context.Context) (run.State, error) // waits for a newer one
	out, errs io.Writer
	model     dialect.Model
	totals    totals
	buf       []byte
	originals originals
}

// shards writes all of the run's shards in order, as they become final.
func (w *writer) shards(ctx context.Context) error {
	for n := 0; ; {
		final := w.state.Done.Frontier()
		if w.state.Phase == run.Finalizing {
			final = w.state.Shards
		}
		for n < final {
			hi := min(n+docsAtOnce, final)
			if err := w.batch(ctx, n, hi); err != nil {
				return err
			}
			n = hi
		}
		if w.state.Phase == run.Finalizing {
			return nil
		}
		var err error
		if w.state, err = w.next(ctx); err != nil {
			return err
		}
		if w.state.Phase.Ended() {
			return ErrWritten
		}
	}
}

// batch writes the shards from lo to hi.
func (w *writer) batch(ctx context.Context, lo, hi int) error {
	docs, err := w.docs(ctx, lo, hi)
	if err != nil {
		return err
	}
	for n := lo; n < hi; n++ {
		if err := w.shard(ctx, n, docs[n-lo]); err != nil {
			return fault.Wrap(err, "shard %d", n)
		}
	}
	return nil
}

func (w *writer) docs(ctx context.Context, lo, hi int) ([]document.Doc, error) {
	keys := make([]string, 0, hi-lo)
	for n := lo; n < hi; n++ {
		keys = append(keys, identity.ShardKey(w.manifest.Run, n))
	}
	return w.Docs.GetMany(ctx, keys)
}

func (w *writer) shard(ctx context.Context, n int, raw document.Doc) error {
	d := shard.New(w.manifest.Run, n)
	if raw.Revision != "" {
		if err := json.Unmarshal(raw.Value, &d); err != nil {
			return fault.As(fault.Corrupt, err, "decode document %s", raw.Key)
		}
	}
	switch {
	case w.neverSent(n):
		return w.unanswered(ctx, n, nil, shard.New(w.manifest.Run, n), w.state.Reason.Class())
	case d.State != shard.Done:
		return fault.New(fault.Unavailable, "it is %s, although its run is over", d.State)
	case d.Result == nil:
		return w.sealed(ctx, n, d)
	}
	w.totals.add(d)
	if w.manifest.Config.Dedupe.Enabled {
		return w.indexed(ctx, n, d)
	}
	return w.copy(ctx, *d.Result, d.OutputLen)
}

// neverSent reports whether the shard is beyond the frontier of a run that
// ended first.
func (w *writer) neverSent(n int) bool {
	return w.state.Phase == run.Finalizing && n >= w.state.Frozen
}

// copy appends a result to both files and checks that it is the committed one.
func (w *writer) copy(ctx context.Context, ref shard.Ref, outputLen int64) error {
	r, _, err := w.Blobs.Get(ctx, ref.Key, blob.GetOptions{})
	if err != nil {
		return err
	}
	defer r.Close()
	h := identity.NewHasher()
	src := io.TeeReader(io.LimitReader(r, ref.Length), h)
	n, err := io.CopyBuffer(onlyWriter{w.out}, io.LimitReader(src, outputLen), w.buf)
	if err != nil {
		return err
	}
	m, err := io.CopyBuffer(onlyWriter{w.errs}, src, w.buf)
	if err != nil {
		return err
	}
	if n+m != ref.Length || h.Sum().String() != ref.Digest {
		return fault.New(fault.Corrupt, "result %s does not have the digest that its shard names; restore it from a backup", ref.Key)
	}
	return nil
}

// onlyWriter hides other methods, so that the buffer is used.
type onlyWriter struct{ io.Writer }

// sealed writes a shard whose run ended before it did: its checkpoint's rows,
// and an error line for every other item.
func (w *writer) sealed(ctx context.Context, n int, d shard.Doc) error {
	var rows []result.Row
	if d.Checkpoint != nil {
		var err error
		if rows, err = result.ReadCheckpoint(ctx, w.Blobs, *d.Checkpoint, d.Items); err != nil {
			return err
		}
	}
	return w.unanswered(ctx, n, rows, d, d.Sealed)
}

// unanswered writes the rows there are, and error lines of the class for the
// items that have none.
func (w *writer) unanswered(ctx context.Context, n int, rows []result.Row, d shard.Doc, class fault.Class) error {
	e, row, err := w.index.Find(ctx, w.manifest.Run, n)
	if err != nil {
		return err
	}
	cuts, err := w.index.Rows(ctx, w.manifest.Run, e, row, 1)
	if err != nil {
		return err
	}
	lines, err := w.lines(ctx, e, row, cuts[0])
	if err != nil {
		return err
	}
	d.Counts.OK, d.Counts.Failed, d.Counts.ByClass = 0, 0, nil // of items that are told apart here
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
			w.totals.count(class)
			err = w.fail(w.failure(l, class))
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
	to := w.out
	if r.Class != "" {
		to = w.errs
	}
	_, err := to.Write(r.Bytes)
	return err
}

// lines reads a shard's lines. Where the input is gone or changed, only the
// places are known: items are told by index.
func (w *writer) lines(ctx context.Context, e record.IndexEntry, row int, cut cuttable.Row) ([]input.Line, error) {
	s, err := w.index.Load(ctx, w.manifest, e.Range, row)
	if err == nil {
		return s.Lines, nil
	}
	if !fault.Is(err, fault.NotFound) && fault.ClassOf(err) != fault.InputChanged {
		return nil, err
	}
	lines := make([]input.Line, cut.Items)
	for i := range lines {
		lines[i].Place = dialect.Place{Item: e.FirstItem + cut.FirstItem + uint64(i), File: w.manifest.Inputs[e.Input].Label()}
	}
	return lines, nil
}

// failure is an unanswered item's: under its own id, read from the input.
func (w *writer) failure(l input.Line, class fault.Class) dialect.Failure {
	f := dialect.Failure{Place: l.Place, Class: class, Message: w.message()}
	if l.Bytes == nil {
		return f
	}
	it, err := dialect.Parse(dialect.Name(w.manifest.Dialect), l.Bytes)
	id := ""
	if err == nil {
		id = it.OwnID(it.ItemID(w.model, l.Place.Item))
	}
	return it.Failure(id, f.Place, f.Class, f.Message)
}

func (w *writer) message() string {
	if w.state.Message != "" {
		return "the run ended first: " + w.state.Message
	}
	return "the run ended first (" + string(w.state.Reason) + ")"
}

// model is what item ids of the run are made of.
func model(m record.Manifest) dialect.Model {
	id, _ := identity.ParseContentID(m.ModelID)
	return dialect.Model{URI: m.ModelURI, ID: id, Params: m.Config.Sampling.Canonical()}
}
