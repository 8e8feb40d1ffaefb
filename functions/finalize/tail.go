package finalize

import (
	"bufio"
	"context"
	"errors"
	"io"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
	"rollout/shared/document"
	"rollout/shared/fault"
	"rollout/shared/host"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// Tail writes the rows of one of a run's files while the run goes on: those of the shards
// before its commit frontier, in the order of the file. What it writes are the first bytes
// of the file that the run will have. It reads the run and changes nothing. It is not safe
// for concurrent use.
type Tail struct {
	*writer
	file   string
	to     *sink
	at     int        // the first shard that is not written
	blobs  blob.Store // without the check for the run's end
	partly bool       // a part of the rows of shard at may be written
	// checked says that the run has ended, and that its file begins with what was written.
	checked bool
}

// Tail returns a tail of the run's file, record.CompletionsFile or record.ErrorsFile,
// that writes to a writer. A training, whose files come at its end, is Invalid.
func (f *Finalizer) Tail(ctx context.Context, id identity.RunID, file string, to io.Writer) (*Tail, error) {
	m, err := host.LoadManifest(ctx, f.Docs, id)
	if err != nil {
		return nil, err
	}
	if m.Kind == config.KindTrain {
		return nil, fault.New(fault.Invalid, "run %s is a training: it has no rows before its end", id)
	}
	t := &Tail{file: file, to: sinkOf(to), blobs: f.Blobs}
	reader := *f
	reader.Blobs = openRun{f.Blobs, f.Docs, id}
	out, errs := t.to, sinkOf(io.Discard)
	if file == record.ErrorsFile {
		out, errs = errs, out
	}
	t.writer = reader.writerTo(m, run.New(id), out, errs, sinkOf(io.Discard))
	return t, nil
}

// sinkOf returns a sink that writes to a writer.
func sinkOf(to io.Writer) *sink { return &sink{Writer: bufio.NewWriterSize(to, sinkBuffer)} }

// Advance writes the rows that were committed since the last call, and returns the run's
// state. All rows of a run that has ended are written then; nothing is written for one
// that was refused. After an error, a row may be written in part.
func (t *Tail) Advance(ctx context.Context) (run.State, error) {
	s := run.New(t.manifest.Run)
	if _, _, err := host.Load(ctx, t.Docs, record.CoordinatorKey(t.manifest.Run), &s); err != nil {
		return s, err
	}
	t.state = s
	write := t.frontier
	if s.Phase.Ended() {
		write = t.rest
	}
	err := write(ctx)
	if errors.Is(err, errEnded) { // results are freed then
		t.partly = true
		if _, _, err = host.Load(ctx, t.Docs, record.CoordinatorKey(t.manifest.Run), &s); err == nil {
			t.state = s
			err = t.rest(ctx)
		}
	}
	if err != nil {
		return s, fault.Wrap(err, "read the rows of run %s", t.manifest.Run)
	}
	return s, t.to.Flush()
}

// errEnded is the error of a read of an object that is gone because its run has ended.
var errEnded = errors.New("the run has ended meanwhile")

// openRun is a bucket from which the results of an open run are read. That an object is gone
// does not mean that it is lost if the run has ended meanwhile.
type openRun struct {
	blob.Store
	docs document.Store
	run  identity.RunID
}

// Get opens an object for reading; see blob.Store.
func (o openRun) Get(ctx context.Context, key string, opts blob.GetOptions) (io.ReadCloser, blob.Info, error) {
	r, info, err := o.Store.Get(ctx, key, opts)
	if !fault.Is(err, fault.NotFound) {
		return r, info, err
	}
	var s run.State
	if _, _, loadErr := host.Load(ctx, o.docs, record.CoordinatorKey(o.run), &s); loadErr != nil {
		return nil, info, loadErr
	}
	if s.Phase.Ended() {
		return nil, info, fault.WithKind(fault.Unavailable, errEnded, "read %s", key)
	}
	return nil, info, err
}

// Rows returns how many items have their row in what was written or, of a tail of
// another file, before it.
func (t *Tail) Rows() (answered, failed uint64) {
	return uint64(t.totals.counts.OK), uint64(t.totals.counts.Failed)
}

// frontier writes the shards before the commit frontier. Answers that a judge reads have
// their scores, and so their rows, at the run's end. So have items that the end left: a
// shard that was sealed ends what is written.
func (t *Tail) frontier(ctx context.Context) error {
	if len(t.manifest.Config.Judges()) > 0 {
		return nil
	}
	for final := t.state.Done.Frontier(); t.at < final; {
		docs, err := t.docsOf(ctx, t.at, min(t.at+docsAtOnce, final))
		if err != nil {
			return err
		}
		n := 0
		for n < len(docs) && !isSealed(docs[n]) {
			n++
		}
		if t.at, err = t.batch(ctx, t.at, docs[:n]); err != nil || n < len(docs) {
			return err
		}
	}
	return nil
}

// isSealed reports whether the run's end left items of the shard.
func isSealed(d shard.Doc) bool { return d.State == shard.Done && d.Result == nil }

// rest writes what the file of the ended run has behind the rows that are written.
func (t *Tail) rest(ctx context.Context) error {
	t.Blobs = t.blobs
	if err := t.checkWritten(ctx); err != nil {
		return err
	}
	key := record.OutputKey(t.manifest.Run, t.file)
	info, err := t.Blobs.Stat(ctx, key, "")
	if fault.Is(err, fault.NotFound) && t.to.written == 0 {
		return nil
	}
	if err != nil || uint64(info.Size) == t.to.written {
		return err
	}
	r, _, err := t.Blobs.Get(ctx, key, blob.GetOptions{Version: info.Version, Offset: int64(t.to.written)})
	if err != nil {
		return fault.Wrap(err, "read %s", key)
	}
	defer r.Close()
	_, err = io.CopyBuffer(onlyWriter{t.to}, r, t.buf)
	if err == nil && t.to.written < uint64(info.Size) {
		err = fault.New(fault.Unavailable, "%s ended after %d of %d bytes", key, t.to.written, info.Size)
	}
	return err
}

// checkWritten returns Corrupt if the rows that are written are not the first ones of the
// file: a result was lost after its rows were read.
func (t *Tail) checkWritten(ctx context.Context) error {
	if t.at == 0 && t.to.written == 0 || t.checked {
		return nil
	}
	b, err := input.ReadPart(ctx, t.Blobs, record.FileEntriesKey(t.manifest.Run), 0,
		int64(min(t.at+1, t.state.Shards))*shardtable.FileEntrySize)
	if err != nil {
		return err
	}
	length, next := uint64(0), uint64(0) // of the shards that are written, and of the one behind them
	for n := 0; len(b) >= shardtable.FileEntrySize; b = b[shardtable.FileEntrySize:] {
		e := shardtable.ParseFileEntry(b)
		size := e.Outputs
		if t.file == record.ErrorsFile {
			size = e.Errors
		}
		switch {
		case n < t.at:
			length += size
		case t.partly:
			next = size
		}
		n++
	}
	if t.to.written < length || t.to.written > length+next {
		return &fault.Error{Kind: fault.Corrupt, Remedy: "read the file of the ended run: `rollout results`",
			Err: fault.New(fault.Corrupt, "the file has other rows than those that were read before")}
	}
	t.checked = true
	return nil
}
