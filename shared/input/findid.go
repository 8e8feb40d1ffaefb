package input

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"rollout/shared/core/identity"
	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// findRanges is how many ranges are searched at the same time. A large input has
// thousands of ranges, and most of the time is spent waiting for the bucket.
const findRanges = 64

// findItems is for how many items the repeats are read at once.
const findItems = 64 * shardtable.RepeatPage

// FindID returns up to limit items whose line has the id as a text or as a number, in
// order. It searches the hash lists of the merged ranges and does not read the input. The
// result may be empty. NotFound means that the plan's objects have expired.
func (x *Index) FindID(ctx context.Context, run identity.RunID, p record.Plan, id string, limit int) ([]uint64, error) {
	keys := dialect.IDKeys(id)
	of := make([][]uint64, len(keys))
	group, ctx := errgroup.WithContext(ctx)
	for i, key := range keys {
		group.Go(func() (err error) {
			of[i], err = x.findKey(ctx, run, p, key, limit)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	out := slices.Concat(of...)
	slices.Sort(out)
	return out[:min(limit, len(out))], nil
}

// findKey returns up to limit items whose line has the key, in order.
func (x *Index) findKey(ctx context.Context, run identity.RunID, p record.Plan, key []byte,
	limit int) ([]uint64, error) {
	first, found, err := x.firstOf(ctx, run, p, shardtable.HashID(key))
	if err != nil || !found {
		return nil, err
	}
	var out []uint64
	for from := int(first.Range); from < p.Merged && len(out) < limit; from += findRanges {
		of := make([][]uint64, min(findRanges, p.Merged-from))
		group, ctx := errgroup.WithContext(ctx)
		for i := range of {
			group.Go(func() (err error) {
				of[i], err = x.itemsOf(ctx, run, from+i, first, limit)
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
	return out[:min(limit, len(out))], nil
}

// itemsOf returns up to limit items of a range with the id of the item at first,
// which is one of them if it is in the range.
func (x *Index) itemsOf(ctx context.Context, run identity.RunID, rng int, first shardtable.Place,
	limit int) ([]uint64, error) {
	e, err := x.Entry(ctx, run, rng)
	if err != nil {
		return nil, err
	}
	again, err := x.repeatsOfItem(ctx, run, e, first, limit)
	if rng == int(first.Range) {
		return append([]uint64{e.FirstItem + uint64(first.Item)}, again...), err
	}
	return again, err
}

// firstOf returns the place of the first item with the hashed id, and whether there
// is one.
func (x *Index) firstOf(ctx context.Context, run identity.RunID, p record.Plan,
	h shardtable.Hash) (shardtable.Place, bool, error) {
	for _, l := range p.IDLists() {
		key := record.HashesKey(p.RangeOwner(run, l.From), l, record.HashIDs)
		at, ok, err := shardtable.FindHash(l.Count, h, func(offset, length int64) ([]byte, error) {
			return ReadPart(ctx, x.blobs, key, offset, length)
		})
		if err != nil || ok {
			return at, ok, fault.Wrap(err, "search %s", key)
		}
	}
	return shardtable.Place{}, false, nil
}

// repeatsOfItem returns up to limit items of a range that repeat the id of the item
// at first.
func (x *Index) repeatsOfItem(ctx context.Context, run identity.RunID, e record.IndexEntry, first shardtable.Place,
	limit int) (out []uint64, err error) {
	if e.Duplicates == 0 {
		return nil, nil
	}
	for lo := uint64(0); lo < e.Items && len(out) < limit; lo += findItems {
		k := repeatsOf{rangeOf{run, e.Range}, record.HashIDs}
		rs, err := x.readRepeats(ctx, k, e.Duplicates, uint32(lo), uint32(min(e.Items, lo+findItems)))
		if err != nil {
			return nil, err
		}
		for _, r := range rs {
			if r.First.Range == first.Range && r.First.Item == first.Item && len(out) < limit {
				out = append(out, e.FirstItem+uint64(r.Item))
			}
		}
	}
	return out, nil
}
