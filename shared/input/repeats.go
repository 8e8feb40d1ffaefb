package input

import (
	"context"

	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// repeatsOf names a range's repeats of one kind.
type repeatsOf struct {
	rangeOf
	of record.HashKind
}

// mark tells the lines of a shard which of them repeat an earlier one.
func (x *Index) mark(ctx context.Context, m record.Manifest, e record.IndexEntry, cut shardtable.Row, lines []Line) error {
	err := x.eachRepeat(ctx, m, e, cut, record.HashIDs, e.Duplicates, func(i int, first *dialect.Place) { lines[i].Duplicate = first })
	if err != nil {
		return err
	}
	return x.eachRepeat(ctx, m, e, cut, record.HashRequests, e.Copies, func(i int, first *dialect.Place) { lines[i].Original = first })
}

// eachRepeat gives every item of a shard that repeats an earlier one, by its
// number in the shard. count is how many the range has.
func (x *Index) eachRepeat(ctx context.Context, m record.Manifest, e record.IndexEntry, cut shardtable.Row, of record.HashKind, count int, give func(int, *dialect.Place)) error {
	if count == 0 {
		return nil
	}
	if count < 0 || uint64(count) > e.Items || e.Items > record.RangeSize {
		return fault.New(fault.Corrupt, "range %d of run %s has %d repeats among %d items", e.Range, m.Run, count, e.Items)
	}
	k := repeatsOf{rangeOf{m.Run, e.Range}, of}
	lo := uint32(cut.FirstItem)
	rs, err := x.readRepeats(ctx, k, count, lo, lo+cut.Items)
	if err != nil {
		return fault.Wrap(err, "read %s", record.RepeatsKey(m.Run, e.Range, of))
	}
	for _, r := range rs {
		first, err := x.place(ctx, m, r.First)
		if err != nil {
			return err
		}
		give(int(r.Item-lo), &first)
	}
	return nil
}

// place says where a planned item stands.
func (x *Index) place(ctx context.Context, m record.Manifest, p shardtable.Place) (dialect.Place, error) {
	e, err := x.Entry(ctx, m.Run, int(p.Range))
	if fault.Is(err, fault.NotFound) { // it would pass for a lost input
		err = fault.WithKind(fault.Corrupt, err, "what is repeated stands in no range")
	}
	if err != nil {
		return dialect.Place{}, err
	}
	if e.Input < 0 || e.Input >= len(m.Inputs) {
		return dialect.Place{}, fault.New(fault.Corrupt, "range %d of run %s names input %d of %d", p.Range, m.Run, e.Input, len(m.Inputs))
	}
	return dialect.Place{Item: e.FirstItem + uint64(p.Item), File: m.Inputs[e.Input].Label(), Line: e.FirstLine + uint64(p.Line) + 1}, nil
}

// readRepeats returns the repeats among the items [lo, hi) of a range that has
// count of them.
func (x *Index) readRepeats(ctx context.Context, k repeatsOf, count int, lo, hi uint32) ([]shardtable.Repeat, error) {
	key := record.RepeatsKey(k.run, k.rng, k.of)
	x.mu.Lock()
	index, ok := x.repeats[k]
	x.mu.Unlock()
	if !ok {
		b, err := ReadPart(ctx, x.blobs, key, shardtable.RepeatOffset(count), 4*int64(shardtable.RepeatPages(count)))
		if err != nil {
			return nil, err
		}
		if index, err = shardtable.ParseRepeatIndex(b, count); err != nil {
			return nil, err
		}
		x.mu.Lock()
		put(x.repeats, k, index, maxRepeatIndexes)
		x.mu.Unlock()
	}
	from, to := index.Pages(lo, hi)
	first, behind := from*shardtable.RepeatPage, min(to*shardtable.RepeatPage, count)
	if first >= behind {
		return nil, nil
	}
	b, err := ReadPart(ctx, x.blobs, key, shardtable.RepeatOffset(first), shardtable.RepeatOffset(behind)-shardtable.RepeatOffset(first))
	if err != nil {
		return nil, err
	}
	return shardtable.ParseRepeats(b, lo, hi)
}
