package input

import (
	"context"

	"rollout/shared/cuttable"
	"rollout/shared/engine/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
)

// findItems is how many items' repeats are read at once.
const findItems = 64 * cuttable.RepeatPage

// FindID returns the items whose line has the id, the first one first: through
// what the plan's merged ranges left, without reading the input. There are at
// most so many; none is no error. NotFound says that the plan's objects are
// gone.
func (x *Index) FindID(ctx context.Context, run identity.RunID, p record.Plan, id []byte, most int) ([]uint64, error) {
	first, found, err := x.firstOf(ctx, run, p, cuttable.HashID(id))
	if err != nil || !found {
		return nil, err
	}
	var out []uint64
	for k := int(first.Range); k < p.Merged && len(out) < most; k++ {
		e, err := x.Entry(ctx, run, k)
		if err != nil {
			return nil, err
		}
		if k == int(first.Range) {
			out = append(out, e.FirstItem+uint64(first.Item))
		}
		again, err := x.repeatsOfItem(ctx, run, e, first, most-len(out))
		if err != nil {
			return nil, err
		}
		out = append(out, again...)
	}
	return out, nil
}

// firstOf returns the place that has the id first.
func (x *Index) firstOf(ctx context.Context, run identity.RunID, p record.Plan, h cuttable.Hash) (cuttable.Place, bool, error) {
	for _, l := range p.IDs {
		key := record.HashesKey(run, l, record.IDs)
		at, ok, err := cuttable.FindHash(l.Count, h, func(offset, length int64) ([]byte, error) {
			return ReadPart(ctx, x.blobs, key, offset, length)
		})
		if err != nil || ok {
			return at, ok, fault.Wrap(err, "search %s", key)
		}
	}
	return cuttable.Place{}, false, nil
}

// repeatsOfItem returns the items of a range that have the id of the one at
// first.
func (x *Index) repeatsOfItem(ctx context.Context, run identity.RunID, e record.IndexEntry, first cuttable.Place, most int) (out []uint64, err error) {
	if e.Duplicates == 0 {
		return nil, nil
	}
	for lo := uint64(0); lo < e.Items && len(out) < most; lo += findItems {
		rs, err := x.readRepeats(ctx, repeatsOf{rangeOf{run, e.Range}, record.IDs}, e.Duplicates, uint32(lo), uint32(min(e.Items, lo+findItems)))
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
