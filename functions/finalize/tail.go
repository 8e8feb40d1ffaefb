package finalize

import (
	"bufio"
	"context"
	"io"

	"rollout/shared/blob"
	"rollout/shared/config"
	"rollout/shared/core/identity"
	"rollout/shared/core/run"
	"rollout/shared/core/shard"
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
	file string
	to   *sink
	at   int // the first shard that is not written
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
	t := &Tail{file: file, to: sinkOf(to)}
	out, errs := t.to, sinkOf(io.Discard)
	if file == record.ErrorsFile {
		out, errs = errs, out
	}
	t.writer = f.writerTo(m, run.New(id), out, errs, sinkOf(io.Discard))
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
	if err := write(ctx); err != nil {
		return s, fault.Wrap(err, "read the rows of run %s", t.manifest.Run)
	}
	return s, t.to.Flush()
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
	if t.at == 0 || t.checked {
		return nil
	}
	b, err := input.ReadPart(ctx, t.Blobs, record.FileEntriesKey(t.manifest.Run), 0,
		int64(t.at)*shardtable.FileEntrySize)
	if err != nil {
		return err
	}
	length := uint64(0)
	for ; len(b) >= shardtable.FileEntrySize; b = b[shardtable.FileEntrySize:] {
		e := shardtable.ParseFileEntry(b)
		if t.file == record.ErrorsFile {
			length += e.Errors
		} else {
			length += e.Outputs
		}
	}
	if length != t.to.written {
		return &fault.Error{Kind: fault.Corrupt, Remedy: "read the file of the ended run: `rollout results`",
			Err: fault.New(fault.Corrupt, "the file has other rows than those that were read before")}
	}
	t.checked = true
	return nil
}
