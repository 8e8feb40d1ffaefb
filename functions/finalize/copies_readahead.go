package finalize

import (
	"context"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"rollout/shared/fault"
	"rollout/shared/result"
)

// copiesReadahead is how many items' originals are fetched before their rows are
// written. fetchers is how many are fetched at once, because a remote store
// answers concurrent requests faster than one after another.
const (
	copiesReadahead = 64
	fetchers        = 16
)

// original is where the answer of an original is.
type original struct {
	item  uint64
	shard int
	at    int // in the shard
}

// fetch caches the originals of the parts that are copies, for find. What does
// not fit into the cache is read again later.
func (o *originals) fetch(ctx context.Context, w *writer, parts []result.Part) error {
	missing, err := o.missing(ctx, w, parts)
	if err != nil {
		return err
	}
	found := map[int]answers{}
	unknown := map[int]bool{}
	for _, m := range missing {
		if as, ok := o.shards[m.shard]; ok {
			found[m.shard] = as
		} else {
			unknown[m.shard] = true
		}
	}
	err = gather(ctx, slices.Sorted(maps.Keys(unknown)), w.answers, func(n int, as answers) {
		found[n] = as
		o.cacheShard(n, as)
	})
	if err != nil {
		return err
	}
	read := func(ctx context.Context, m original) (answer, error) {
		return found[m.shard].read(ctx, w.Blobs, m.at)
	}
	return gather(ctx, missing, read, func(m original, a answer) { o.cacheRow(m.item, a) })
}

// missing returns the originals of the parts that are neither cached, lost nor of the
// shard being written, each once.
func (o *originals) missing(ctx context.Context, w *writer, parts []result.Part) (out []original, err error) {
	listed := map[uint64]bool{}
	for _, p := range parts {
		if _, known := o.rows[p.Original]; p.Kind != result.RowCopy || known || listed[p.Original] {
			continue
		}
		listed[p.Original] = true
		m := original{item: p.Original}
		if m.shard, m.at, err = w.locate(ctx, m.item); err != nil {
			return nil, fault.Wrap(err, "item %d, the original of a copy", m.item)
		}
		if m.shard != o.current && !o.lost[m.shard] {
			out = append(out, m)
		}
	}
	return out, nil
}

// gather calls get for every key, several at once, and then yield with each key
// and its value, in order.
func gather[K, V any](ctx context.Context, keys []K, get func(context.Context, K) (V, error),
	yield func(K, V)) error {
	got := make([]V, len(keys))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(fetchers)
	for i, k := range keys {
		group.Go(func() (err error) {
			got[i], err = get(ctx, k)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i, k := range keys {
		yield(k, got[i])
	}
	return nil
}
