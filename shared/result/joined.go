package result

import (
	"bufio"
	"context"
	"errors"
	"io"

	"rollout/shared/blob"
	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// Joined is where the rows of a shard are in the output files of an ended run. It is made of
// the entries of the files, which stay when the shard's result is freed.
type Joined struct {
	shardtable.Inherited
	OKBefore, FailedBefore uint64 // rows of the shards before it in the two files
}

// FindJoined finds the rows of a shard, whose first item has that index, in the output files
// of an ended run. NotFound means that the run has no entry of the shard.
func FindJoined(ctx context.Context, blobs blob.Store, run identity.RunID, shard int, first uint64) (Joined, error) {
	e, err := openJoined(ctx, blobs, run, int64(shard+1)*shardtable.FileEntrySize)
	if err != nil {
		return Joined{}, err
	}
	defer e.Close() // a read loses nothing
	return e.Find(shard, first)
}

// JoinedEntries finds the rows of one shard after the other in the output files of an ended run.
type JoinedEntries struct {
	key     string
	from    io.Closer
	entries *bufio.Reader
	next    int    // the shard of the next entry
	at      Joined // where its rows begin
}

// OpenJoined opens the entries of an ended run. NotFound means that it has none.
func OpenJoined(ctx context.Context, blobs blob.Store, run identity.RunID) (*JoinedEntries, error) {
	return openJoined(ctx, blobs, run, 0)
}

func openJoined(ctx context.Context, blobs blob.Store, run identity.RunID, length int64) (*JoinedEntries, error) {
	key := record.FileEntriesKey(run)
	r, _, err := blobs.Get(ctx, key, blob.GetOptions{Length: length})
	if err != nil {
		return nil, fault.Wrap(err, "read %s", key)
	}
	return &JoinedEntries{key: key, from: r, entries: bufio.NewReaderSize(r, 64<<10)}, nil
}

// Close ends the reading.
func (e *JoinedEntries) Close() error { return e.from.Close() }

// Find finds the rows of a shard, whose first item has that index, and which is behind the one
// before. NotFound means that the run has no entry of the shard.
func (e *JoinedEntries) Find(shard int, first uint64) (Joined, error) {
	buf := make([]byte, shardtable.FileEntrySize)
	for ; ; e.next++ {
		if _, err := io.ReadFull(e.entries, buf); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = fault.New(fault.NotFound, "%s has no entry of shard %d", e.key, shard)
			}
			return Joined{}, fault.Wrap(err, "read %s", e.key)
		}
		here := e.at
		here.FileEntry = shardtable.ParseFileEntry(buf)
		e.at.OutputAt, e.at.ErrorAt = here.OutputAt+here.Outputs, here.ErrorAt+here.Errors
		e.at.OKBefore, e.at.FailedBefore = here.OKBefore+uint64(here.OK), here.FailedBefore+uint64(here.Failed)
		if e.next == shard {
			e.next++
			here.Touched, here.FirstItem = true, first
			return here, nil
		}
	}
}

// ReadJoined returns the rows of a shard in the output files of an ended run, in item order:
// an error row names its item, and the others are the answered ones. NotFound and Corrupt
// mean that the files are gone or changed.
func ReadJoined(ctx context.Context, blobs blob.Store, run identity.RunID, d dialect.Name,
	in shardtable.Inherited) ([]Row, error) {
	outputs, err := linesOf(ctx, blobs, record.OutputKey(run, record.CompletionsFile), in.OutputAt, in.Outputs)
	if err != nil {
		return nil, err
	}
	errs, err := linesOf(ctx, blobs, record.OutputKey(run, record.ErrorsFile), in.ErrorAt, in.Errors)
	if err != nil {
		return nil, err
	}
	rows, ok := Of{Dialect: d, First: in.FirstItem, Items: in.Items()}.order(outputs, errs)
	if !ok || len(outputs) != int(in.OK) {
		return nil, fault.New(fault.Corrupt, "the output files of run %s are not those that it wrote", run)
	}
	return rows, nil
}
