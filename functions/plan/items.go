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

// items yields the answered items of all results, in order, with their lines.
func (r results) items(ctx context.Context, m record.Manifest) iter.Seq2[kind.Answered, error] {
	return func(yield func(kind.Answered, error) bool) {
		var docs []shard.Doc
		flush := func() (more bool) {
			for n := 0; len(docs) > 0; docs = docs[n:] {
				n = result.Together(docs)
				shards, err := r.read(ctx, m, docs[:n])
				if err != nil {
					yield(kind.Answered{}, err)
					return false
				}
				for _, it := range slices.Concat(shards...) {
					if !yield(it, nil) {
						return false
					}
				}
			}
			return true
		}
		for d, err := range r.docs(ctx) {
			if err != nil {
				yield(kind.Answered{}, err)
				return
			}
			if docs = append(docs, d); len(docs) == shardsAhead && !flush() {
				return
			}
		}
		flush()
	}
}

// read reads the answered items of the shards.
func (r results) read(ctx context.Context, m record.Manifest, docs []shard.Doc) ([][]kind.Answered, error) {
	out := make([][]kind.Answered, len(docs))
	group, ctx := errgroup.WithContext(ctx)
	for i, d := range docs {
		group.Go(func() (err error) {
			out[i], err = r.answered(ctx, m, d)
			return fault.Wrap(err, "shard %d", d.Shard)
		})
	}
	return out, group.Wait()
}

// answered reads the answered items of a shard that has a result.
func (r results) answered(ctx context.Context, m record.Manifest, d shard.Doc) (items []kind.Answered, err error) {
	in, rows, err := result.ReadShard(ctx, r.Blobs, r.index, m, d)
	if errors.Is(err, result.ErrLost) { // finalize writes its items as failed
		r.Log.ErrorContext(ctx, "a result is lost: nothing is asked about its items", "run", m.Run, "shard", d.Shard,
			"error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, row := range rows {
		if row.Class == "" {
			items = append(items, kind.Answered{Item: in.FirstItem + uint64(row.Item), Line: in.Lines[row.Item].Bytes,
				Row: row.Bytes})
		}
	}
	return items, nil
}
