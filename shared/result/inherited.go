package result

import (
	"context"

	"rollout/shared/blob"
	"rollout/shared/core/shard"
	"rollout/shared/dialect"
	"rollout/shared/fault"
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
	rows, err := ReadInherited(ctx, blobs, m, in)
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

// ReadInherited returns the rows of a shard in the output files of a child's parent,
// in item order: an error row names its item, and the others are the answered ones.
func ReadInherited(ctx context.Context, blobs blob.Store, m record.Manifest,
	in shardtable.Inherited) ([]Row, error) {
	outputs, err := linesOf(ctx, blobs, record.OutputKey(m.Parent.Run, record.CompletionsFile), in.OutputAt, in.Outputs)
	if err != nil {
		return nil, err
	}
	errs, err := linesOf(ctx, blobs, record.OutputKey(m.Parent.Run, record.ErrorsFile), in.ErrorAt, in.Errors)
	if err != nil {
		return nil, err
	}
	of := Of{Dialect: dialect.Name(m.Dialect), First: in.FirstItem, Items: in.Items()}
	rows, ok := of.order(outputs, errs)
	if !ok || len(outputs) != int(in.OK) {
		return nil, changedFiles(m)
	}
	return rows, nil
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

func changedFiles(m record.Manifest) error {
	return fault.New(fault.Corrupt, "the output files of run %s are not those that it wrote", m.Parent.Run)
}
