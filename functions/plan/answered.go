package plan

import (
	"context"
	"iter"

	"golang.org/x/sync/errgroup"

	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/kind"
	"rollout/shared/record"
	"rollout/shared/result"
)

// shardsAhead is how many shards are read at once: a remote store answers concurrent
// requests faster than one after another. Their lines and results are in memory.
const shardsAhead = 8

// items yields the answered items of all results, in order, with their lines.
func (r results) items(ctx context.Context, m record.Manifest) iter.Seq2[kind.Answered, error] {
	return func(yield func(kind.Answered, error) bool) {
		index := input.NewIndex(r.Blobs, r.Docs)
		var docs []shard.Doc
		flush := func() (more bool) {
			shards, err := r.read(ctx, m, index, docs)
			docs = docs[:0]
			if err != nil {
				yield(kind.Answered{}, err)
				return false
			}
			for _, items := range shards {
				for _, it := range items {
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
func (r results) read(ctx context.Context, m record.Manifest, index *input.Index,
	docs []shard.Doc) ([][]kind.Answered, error) {
	out := make([][]kind.Answered, len(docs))
	group, ctx := errgroup.WithContext(ctx)
	for i, d := range docs {
		group.Go(func() (err error) {
			out[i], err = answered(ctx, r.Planner, m, index, d)
			return fault.Wrap(err, "shard %d", d.Shard)
		})
	}
	return out, group.Wait()
}

// answered reads the answered items of a shard that has a result.
func answered(ctx context.Context, p *Planner, m record.Manifest, index *input.Index,
	d shard.Doc) (items []kind.Answered, err error) {
	in, rows, err := result.ReadShard(ctx, p.Blobs, index, m, d)
	if err != nil {
		return nil, err
	}
	for _, r := range rows {
		if r.Class == "" {
			items = append(items, kind.Answered{Item: in.FirstItem + uint64(r.Item), Line: in.Lines[r.Item].Bytes, Row: r.Bytes})
		}
	}
	return items, nil
}
