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
	key := record.FileEntriesKey(run)
	j := Joined{Inherited: shardtable.Inherited{Touched: true, FirstItem: first}}
	r, _, err := blobs.Get(ctx, key, blob.GetOptions{Length: int64(shard+1) * shardtable.FileEntrySize})
	if err != nil {
		return j, fault.Wrap(err, "read %s", key)
	}
	defer r.Close() // a read loses nothing
	entries, buf := bufio.NewReaderSize(r, 64<<10), make([]byte, shardtable.FileEntrySize)
	for n := 0; ; n++ {
		if _, err := io.ReadFull(entries, buf); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = fault.New(fault.NotFound, "%s has no entry of shard %d", key, shard)
			}
			return j, fault.Wrap(err, "read %s", key)
		}
		e := shardtable.ParseFileEntry(buf)
		if n == shard {
			j.FileEntry = e
			return j, nil
		}
		j.OutputAt, j.ErrorAt = j.OutputAt+e.Outputs, j.ErrorAt+e.Errors
		j.OKBefore, j.FailedBefore = j.OKBefore+uint64(e.OK), j.FailedBefore+uint64(e.Failed)
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
