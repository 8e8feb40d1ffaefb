package input

import (
	"context"

	"golang.org/x/sync/errgroup"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// findRanges is how many ranges are looked at beside each other: a large input
// has thousands, and most of the time goes by in waiting for the bucket.
const findRanges = 64

// findItems is how many items' repeats are read at once.
const findItems = 64 * shardtable.RepeatPage

// FindID returns the items whose line has the id, the first one first: through
// what the plan's merged ranges left, without reading the input. There are at
// most so many; none is no error. NotFound says that the plan's objects are
// gone.
func (x *Index) FindID(ctx context.Context, run identity.RunID, p record.Plan, id []byte, most int) ([]uint64, error) {
	first, found, err := x.firstOf(ctx, run, p, shardtable.HashID(id))
	if err != nil || !found {
		return nil, err
	}
	var out []uint64
	for from := int(first.Range); from < p.Merged && len(out) < most; from += findRanges {
		of := make([][]uint64, min(findRanges, p.Merged-from))
		group, ctx := errgroup.WithContext(ctx)
		for i := range of {
			group.Go(func() (err error) {
				of[i], err = x.itemsOf(ctx, run, from+i, first, most)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return nil, err
		}
		for _, items := range of {
			out = append(out, items...)
		}
	}
	return out[:min(most, len(out))], nil
}

// itemsOf returns the items of a range that have the id of the one at first.
func (x *Index) itemsOf(ctx context.Context, run identity.RunID, rng int, first shardtable.Place, most int) ([]uint64, error) {
	e, err := x.Entry(ctx, run, rng)
	if err != nil {
		return nil, err
	}
	again, err := x.repeatsOfItem(ctx, run, e, first, most)
	if rng == int(first.Range) {
		return append([]uint64{e.FirstItem + uint64(first.Item)}, again...), err
	}
	return again, err
}

// firstOf returns the place that has the id first.
func (x *Index) firstOf(ctx context.Context, run identity.RunID, p record.Plan, h shardtable.Hash) (shardtable.Place, bool, error) {
	for _, l := range p.IDs {
		key := record.HashesKey(run, l, record.HashIDs)
		at, ok, err := shardtable.FindHash(l.Count, h, func(offset, length int64) ([]byte, error) {
			return ReadPart(ctx, x.blobs, key, offset, length)
		})
		if err != nil || ok {
			return at, ok, fault.Wrap(err, "search %s", key)
		}
	}
	return shardtable.Place{}, false, nil
}

// repeatsOfItem returns the items of a range that have the id of the one at
// first.
func (x *Index) repeatsOfItem(ctx context.Context, run identity.RunID, e record.IndexEntry, first shardtable.Place, most int) (out []uint64, err error) {
	if e.Duplicates == 0 {
		return nil, nil
	}
	for lo := uint64(0); lo < e.Items && len(out) < most; lo += findItems {
		rs, err := x.readRepeats(ctx, repeatsOf{rangeOf{run, e.Range}, record.HashIDs}, e.Duplicates, uint32(lo), uint32(min(e.Items, lo+findItems)))
		if err != nil {
			return nil, err
		}
		for _, r := range rs {
			if r.First.Range == first.Range && r.First.Item == first.Item && len(out) < most {
				out = append(out, e.FirstItem+uint64(r.Item))
			}
		}
	}
	return out, nil
}
