package result

import (
	"context"

	"rollout/shared/blob"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// ReadKept returns the rows that a child run keeps of a shard: those of its parent,
// less those of the items that it asks again. c counts them; the tokens are the
// parent's and do not count. NotFound and Corrupt mean that the parent's output files
// are gone or changed.
func ReadKept(ctx context.Context, blobs blob.Store, m record.Manifest,
	in shardtable.Inherited) (kept []Row, c shard.Counts, err error) {
	rows, err := ReadJoined(ctx, blobs, m.Parent.Run, dialect.Name(m.Dialect), in)
	if err != nil {
		return nil, c, err
	}
	for _, r := range rows {
		if m.Parent.Selection.SelectsRow(in.FirstItem+uint64(r.Item), r.Class, dialect.Name(m.Dialect), r.Bytes) {
			continue
		}
		kept = append(kept, r)
		if r.Class == "" {
			c.Add(shard.Counts{OK: 1, Kept: 1})
		} else {
			c.Add(shard.Counts{Failed: 1, KeptFailed: 1, ByClass: map[string]int{string(r.Class): 1}})
		}
	}
	return kept, c, nil
}

// linesOf reads the lines of a part of an object, with their line feeds.
func linesOf(ctx context.Context, blobs blob.Store, key string, at, length uint64) (lines [][]byte, err error) {
	if length == 0 {
		return nil, nil
	}
	b, err := input.ReadPart(ctx, blobs, key, int64(at), int64(length))
	if err != nil {
		return nil, err
	}
	return linesIn(b), nil
}
