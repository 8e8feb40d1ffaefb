package finalize

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/grade"
	"rollout/shared/record"
	"rollout/shared/result"
)

// copyBuffer is how many bytes of a result are read at once.
const copyBuffer = 256 << 10

// docsAtOnce is how many shard documents are read at once.
const docsAtOnce = 256

// writer writes the two files of a run, or those of a segment.
type writer struct {
	*Finalizer
	manifest  record.Manifest
	state     run.State
	known     []shard.Doc                              // of all shards; nil: the writer reads them
	next      func(context.Context) (run.State, error) // waits for a newer state
	facts     *parts                                   // written behind the frontier; nil: at the end
	late      func() bool                              // optional: reports that no time is left for another shard
	out, errs *sink
	entries   *sink     // of the shards: see record.FileEntriesKey
	outputs   io.Writer // out; in a run with graders it also sums up the scores
	model     dialect.Model
	totals    totals
	buf       []byte
	readahead *readahead // nil: results are read when they are written
	first     int        // the first shard that is written
	current   int        // the shard that is being written
	originals originals
	pruned    map[uint32]cause // of the pruned variants that were met
	verdicts  []*verdicts      // of the run's judges
}

// fileKeys are the keys of the files that a writer writes.
type fileKeys struct{ completions, errs, entries string }

// writer returns a writer that has begun the files under these keys.
func (f *Finalizer) writer(ctx context.Context, m record.Manifest, s run.State, k fileKeys) (*writer, error) {
	judges, err := f.newVerdicts(m)
	if err != nil {
		return nil, err
	}
	w := f.writerTo(m, s, f.open(ctx, k.completions), f.open(ctx, k.errs), f.open(ctx, k.entries))
	w.verdicts = judges
	if len(m.Config.Grades) > 0 {
		w.totals.scores = &grade.Totals{}
		w.outputs = io.MultiWriter(w.out, &scores{totals: w.totals.scores})
	}
	return w, nil
}

// writerTo returns a writer of these files.
func (f *Finalizer) writerTo(m record.Manifest, s run.State, out, errs, entries *sink) *writer {
	return &writer{Finalizer: f, manifest: m, state: s, out: out, errs: errs, entries: entries, outputs: out,
		model: m.DialectModel(), buf: make([]byte, copyBuffer)}
}

// finish completes the files, or drops them if err is not nil.
func (w *writer) finish(err error) error {
	return errors.Join(err, w.out.finish(err), w.errs.finish(err), w.entries.finish(err))
}

// stream writes the rows of every shard into both files, in order. known are the
// documents of all shards, or nil. next may be nil for a run that is Finalizing. Facts, unless
// nil, are written meanwhile, as far as parts are whole. Its error is ErrAlreadyFinalized if
// results are gone because another process has ended the run.
func (f *Finalizer) stream(ctx context.Context, m record.Manifest, s run.State, known []shard.Doc,
	next func(context.Context) (run.State, error), facts *parts) (run.State, totals, bool, error) {
	w, err := f.writer(ctx, m, s, fileKeys{record.OutputKey(m.Run, record.CompletionsFile),
		record.OutputKey(m.Run, record.ErrorsFile), record.FileEntriesKey(m.Run)})
	if err != nil {
		return s, totals{}, false, err
	}
	reader := *f
	reader.Blobs = openRun{f.Blobs, f.Docs, m.Run}
	w.Finalizer, w.known, w.next, w.facts = &reader, known, next, facts
	err = w.shards(ctx)
	if errors.Is(err, errEnded) {
		err = ErrAlreadyFinalized
	}
	err = w.finish(err)
	return w.state, w.totals, true, err
}

// shards writes all of the run's shards in order, as soon as each is final.
func (w *writer) shards(ctx context.Context) error {
	for n := 0; ; {
		final := w.state.Done.Frontier()
		if len(w.verdicts) > 0 {
			final = 0 // answers wait for their scores
		}
		if w.state.Phase == run.Finalizing {
			final = w.state.Shards
		}
		if final > n {
			if _, err := w.writeShards(ctx, n, final); err != nil {
				return err
			}
			n = final
		}
		if w.state.Phase == run.Finalizing {
			return nil
		}
		if _, err := w.facts.advance(ctx, w.state, func() bool { return false }); err != nil {
			return err
		}
		var err error
		if w.state, err = w.next(ctx); err != nil {
			return err
		}
		if w.state.Phase.Ended() {
			return ErrAlreadyFinalized
		}
	}
}

// writeShards writes the shards from lo on, up to hi or until it is late. It
// returns the first shard that is not written.
func (w *writer) writeShards(ctx context.Context, lo, hi int) (int, error) {
	for n := lo; n < hi; {
		docs, err := w.docsOf(ctx, n, min(n+docsAtOnce, hi))
		if err != nil {
			return n, err
		}
		if n, err = w.batch(ctx, n, docs); err != nil || n < hi && w.isLate() {
			return n, err
		}
	}
	return hi, nil
}

// docsOf returns the documents of the shards from lo to hi.
func (w *writer) docsOf(ctx context.Context, lo, hi int) ([]shard.Doc, error) {
	if w.known != nil {
		return w.known[lo:hi], nil
	}
	return w.docs(ctx, w.manifest.Run, lo, hi)
}

func (w *writer) isLate() bool { return w.late != nil && w.late() }

// batch writes the shards from lo on, until it is late. It returns the first
// shard that is not written.
func (w *writer) batch(ctx context.Context, lo int, docs []shard.Doc) (int, error) {
	if w.segments != nil {
		w.readahead = w.readAhead(ctx, lo, docs)
		defer w.readahead.stop()
	}
	for i, d := range docs {
		if err := w.shard(ctx, lo+i, d); err != nil {
			return lo + i, fault.Wrap(err, "shard %d", lo+i)
		}
		if w.isLate() {
			return lo + i + 1, nil
		}
	}
	return lo + len(docs), nil
}

// docs reads the documents of the shards from lo to hi. The document of a shard
// that was never claimed is absent; docs returns a Pending one.
func (f *Finalizer) docs(ctx context.Context, id identity.RunID, lo, hi int) ([]shard.Doc, error) {
	keys := make([]string, 0, hi-lo)
	for n := lo; n < hi; n++ {
		keys = append(keys, identity.ShardKey(id, n))
	}
	raw, err := f.Docs.GetMany(ctx, keys)
	if err != nil {
		return nil, err
	}
	out := make([]shard.Doc, len(raw))
	for i, r := range raw {
		out[i] = shard.New(id, lo+i)
		if r.Revision == "" {
			continue
		}
		if err := json.Unmarshal(r.Value, &out[i]); err != nil {
			return nil, fault.WithKind(fault.Corrupt, err, "decode document %s", r.Key)
		}
		if out[i].Run != id || out[i].Shard != lo+i {
			return nil, fault.New(fault.Corrupt, "document %s is of shard %d of run %s", r.Key, out[i].Shard, out[i].Run)
		}
	}
	return out, nil
}

// shard writes the rows of one shard, and its entry.
func (w *writer) shard(ctx context.Context, n int, d shard.Doc) error {
	w.current = n
	before := w.position()
	if err := w.shardRows(ctx, n, d); err != nil {
		return err
	}
	return w.addEntry(before)
}

// shardRows writes the rows of one shard.
func (w *writer) shardRows(ctx context.Context, n int, d shard.Doc) error {
	role, err := w.index.RoleOf(ctx, w.manifest, n)
	if err == nil {
		err = w.begin(role)
	}
	if err != nil {
		return err
	}
	if w.manifest.Parent != nil {
		in, err := w.index.Inherited(ctx, w.manifest.Run, n)
		if err != nil {
			return err
		}
		if !in.Touched {
			return w.inheritedRows(ctx, n, in)
		}
	}
	if !w.manifest.HasOutput(role) {
		return w.counted(ctx, n, d, role)
	}
	switch {
	case w.unsent(n, d):
		why, err := w.whyUnsent(ctx, n)
		if err != nil {
			return err
		}
		d = shard.New(w.manifest.Run, n)
		rows, kept, err := w.keptRows(ctx, n)
		if err != nil {
			return err
		}
		d.Counts.Kept, d.Counts.KeptFailed = kept.Kept, kept.KeptFailed
		return w.unanswered(ctx, n, rows, d, why)
	case d.State != shard.Done:
		return fault.New(fault.Unavailable, "it is %s, although its run is over", d.State)
	case d.Result == nil:
		return w.sealed(ctx, n, d)
	case d.OutputLen < 0 || d.OutputLen > d.Result.Length:
		return fault.New(fault.Corrupt, "its result of %d bytes has %d of output rows", d.Result.Length, d.OutputLen)
	}
	indexed, judged := w.manifest.Config.Dedupe.Enabled, len(w.verdicts) > 0
	b, err := w.committed(ctx, n, *d.Result, indexed || judged)
	switch {
	case errors.Is(err, result.ErrLost):
		return w.lost(ctx, n, d, err)
	case err != nil:
		return err
	}
	w.totals.add(d)
	switch {
	case indexed:
		return w.indexed(ctx, n, d, b)
	case judged:
		return w.judged(ctx, n, d, b)
	case b != nil:
		return w.rows(b, d.OutputLen)
	}
	return w.copy(ctx, *d.Result, d.OutputLen)
}

// begin sets which role the shard has whose rows are written next: it decides which model its items
// have, and whose counts they are.
func (w *writer) begin(role uint32) error {
	w.totals.role = 0
	if len(w.manifest.Roles) == 0 || !w.manifest.HasOutput(role) {
		return nil
	}
	m, err := w.manifest.InRole(role)
	w.totals.role, w.model = role, m.DialectModel()
	return err
}

// counted counts a shard whose role has no output. Its rows stay in its result.
func (w *writer) counted(ctx context.Context, n int, d shard.Doc, role uint32) error {
	switch {
	case w.unsent(n, d):
		why, err := w.whyUnsent(ctx, n)
		if err != nil {
			return err
		}
		_, _, cut, err := w.cut(ctx, n)
		if err != nil {
			return err
		}
		if d, err = shard.New(w.manifest.Run, n).Seal(why.class, int(cut.Items)); err != nil {
			return err
		}
	case d.State != shard.Done:
		return fault.New(fault.Unavailable, "it is %s, although its run is over", d.State)
	}
	w.totals.addUnseen(role, d)
	return nil
}

// rows appends a result's output rows and error rows to the files.
func (w *writer) rows(b []byte, outputLen int64) error {
	_, err := w.outputs.Write(b[:outputLen])
	if err == nil {
		_, err = w.errs.Write(b[outputLen:])
	}
	return err
}

// unsent reports whether the shard may never have been sent; whyUnsent decides.
func (w *writer) unsent(n int, d shard.Doc) bool {
	return w.neverSent(n) || d.State == shard.Pending && len(w.state.Pruned) > 0
}

// neverSent reports whether the run ended before the shard was sent: it is beyond the
// frozen frontier, or was skipped.
func (w *writer) neverSent(n int) bool {
	return w.state.Phase == run.Finalizing && (n >= w.state.FrozenFrontier || w.state.Skipped.Has(n))
}

// copy appends a result to both files. It fails if the result is not the one that was
// checked.
func (w *writer) copy(ctx context.Context, ref shard.Ref, outputLen int64) error {
	r, _, err := w.Blobs.Get(ctx, ref.Key, blob.GetOptions{})
	if err != nil {
		return err
	}
	defer r.Close()
	h := identity.NewHasher()
	src := io.TeeReader(io.LimitReader(r, ref.Length), h)
	n, err := io.CopyBuffer(onlyWriter{w.outputs}, io.LimitReader(src, outputLen), w.buf)
	if err != nil {
		return err
	}
	m, err := io.CopyBuffer(onlyWriter{w.errs}, src, w.buf)
	if err != nil {
		return err
	}
	if n+m != ref.Length || h.Sum().String() != ref.Digest {
		return result.NotCommitted(ref)
	}
	return nil
}

// onlyWriter hides ReadFrom, so that io.CopyBuffer uses its buffer.
type onlyWriter struct{ io.Writer }
