package plan

import (
	"context"
	"errors"
	"iter"
	"slices"

	"golang.org/x/sync/errgroup"

	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/kind"
	"rollout/shared/record"
	"rollout/shared/result"
)

// shardsAhead is how many shards are read at once: a remote store answers concurrent
// requests faster than one after another. Their lines and results are in memory; larger
// results are fewer at once: see result.Together.
const shardsAhead = 8

// items yields the items of all results, in order, with their lines.
func (r results) items(ctx context.Context, m record.Manifest) iter.Seq2[kind.Item, error] {
	return func(yield func(kind.Item, error) bool) {
		err := r.inGroups(ctx, shardsAhead, func(docs []shard.Doc) (more bool) {
			for n := 0; len(docs) > 0; docs = docs[n:] {
				n = result.Together(docs)
				shards, err := r.read(ctx, m, docs[:n])
				if err != nil {
					yield(kind.Item{}, err)
					return false
				}
				for _, it := range slices.Concat(shards...) {
					if !yield(it, nil) {
						return false
					}
				}
			}
			return true
		})
		if err != nil {
			yield(kind.Item{}, err)
		}
	}
}

// inGroups calls each with the documents of the results in their order, at most that many at a
// time, until it returns false. It returns the error of reading them. The caller must not keep the
// slice.
func (r results) inGroups(ctx context.Context, most int, each func([]shard.Doc) bool) error {
	var docs []shard.Doc
	for d, err := range r.docs(ctx) {
		if err != nil {
			return err
		}
		if docs = append(docs, d); len(docs) < most {
			continue
		}
		if !each(docs) {
			return nil
		}
		docs = docs[:0]
	}
	each(docs)
	return nil
}

// read reads the items of the shards.
func (r results) read(ctx context.Context, m record.Manifest, docs []shard.Doc) ([][]kind.Item, error) {
	out := make([][]kind.Item, len(docs))
	group, ctx := errgroup.WithContext(ctx)
	for i, d := range docs {
		group.Go(func() (err error) {
			out[i], err = r.rowsOf(ctx, m, d)
			return fault.Wrap(err, "shard %d", d.Shard)
		})
	}
	return out, group.Wait()
}

// rowsOf reads the items of a shard that has a result.
func (r results) rowsOf(ctx context.Context, m record.Manifest, d shard.Doc) (items []kind.Item, err error) {
	in, rows, err := result.ReadShard(ctx, r.Blobs, r.index, m, d)
	lost := errors.Is(err, result.ErrLost) // finalize writes its items as failed
	if err != nil && !lost {
		return nil, err
	}
	if lost {
		r.Log.ErrorContext(ctx, "a result is lost: nothing is asked about its items", "run", m.Run, "shard", d.Shard,
			"error", err)
	}
	items = make([]kind.Item, len(in.Lines))
	for n, line := range in.Lines {
		items[n] = kind.Item{Index: in.FirstItem + uint64(n), Line: line.Bytes, Class: fault.Storage, Attempt: d.Attempt}
	}
	for _, row := range rows {
		items[row.Item].Class, items[row.Item].Row = row.Class, row.Bytes
	}
	return items, nil
}
