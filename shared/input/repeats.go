package input

import (
	"context"

	"rollout/shared/dialect"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// repeatsOf identifies the repeats of one kind in a range.
type repeatsOf struct {
	rangeOf
	of record.HashKind
}

// mark sets Duplicate and Original of the lines of a shard that repeat an earlier
// line.
func (x *Index) mark(ctx context.Context, m record.Manifest, e record.IndexEntry, cut shardtable.Row,
	lines []Line) error {
	lo := uint32(cut.FirstItem)
	for _, kind := range []struct {
		of    record.HashKind
		count int // in the range
		set   func(l *Line, first *dialect.Place)
	}{
		{record.HashIDs, e.Duplicates, func(l *Line, first *dialect.Place) { l.Duplicate = first }},
		{record.HashRequests, e.Copies, func(l *Line, first *dialect.Place) { l.Original = first }},
	} {
		if kind.count == 0 {
			continue
		}
		if kind.count < 0 || uint64(kind.count) > e.Items || e.Items > record.RangeSize {
			return fault.New(fault.Corrupt, "range %d of run %s has %d repeats among %d items",
				e.Range, m.Run, kind.count, e.Items)
		}
		k := repeatsOf{rangeOf{m.Run, e.Range}, kind.of}
		rs, err := x.readRepeats(ctx, k, kind.count, lo, lo+cut.Items)
		if err != nil {
			return fault.Wrap(err, "read %s", record.RepeatsKey(m.Run, e.Range, kind.of))
		}
		for _, r := range rs {
			first, err := x.place(ctx, m, r.First)
			if err != nil {
				return err
			}
			kind.set(&lines[r.Item-lo], &first)
		}
	}
	return nil
}

// place returns the place of a planned item in the run and in its file.
func (x *Index) place(ctx context.Context, m record.Manifest, p shardtable.Place) (dialect.Place, error) {
	e, err := x.Entry(ctx, m.Run, int(p.Range))
	if fault.Is(err, fault.NotFound) { // callers would take NotFound for a missing input
		err = fault.WithKind(fault.Corrupt, err, "the range of a repeated line is missing")
	}
	if err != nil {
		return dialect.Place{}, err
	}
	file, err := x.InputName(ctx, m, e.Input)
	if err != nil {
		return dialect.Place{}, err
	}
	return dialect.Place{
		Item: e.FirstItem + uint64(p.Item),
		File: file,
		Line: e.FirstLine + uint64(p.Line) + 1,
	}, nil
}

// readRepeats returns the repeats among the items [lo, hi) of a range with count
// repeats in all.
func (x *Index) readRepeats(ctx context.Context, k repeatsOf, count int, lo, hi uint32) ([]shardtable.Repeat, error) {
	owner, err := x.rangeOwner(ctx, k.rangeOf)
	if err != nil {
		return nil, err
	}
	key := record.RepeatsKey(owner, k.rng, k.of)
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
	offset := shardtable.RepeatOffset(first)
	b, err := ReadPart(ctx, x.blobs, key, offset, shardtable.RepeatOffset(behind)-offset)
	if err != nil {
		return nil, err
	}
	return shardtable.ParseRepeats(b, lo, hi)
}
