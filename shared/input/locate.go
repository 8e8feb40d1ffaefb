package input

import (
	"context"
	"sort"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// Location is the planned shard of an item or a line.
type Location struct {
	Entry record.IndexEntry
	Row   int // in the range's cut table
	Cut   shardtable.Row
}

// Shard is the shard's number in the run.
func (l Location) Shard() int { return l.Entry.FirstShard + l.Row }

// FirstItem is the index of the shard's first item in the run.
func (l Location) FirstItem() uint64 { return l.Entry.FirstItem + l.Cut.FirstItem }

// LocateItem returns the shard of an item; NotFound if it is not planned
// (yet).
func (x *Index) LocateItem(ctx context.Context, run identity.RunID, item uint64) (Location, error) {
	return x.inPlan(ctx, run, func(p record.Plan) (Location, error) {
		return x.locate(ctx, run, 0, p.Merged,
			func(e record.IndexEntry) (after, within bool) {
				return item >= e.FirstItem, item < e.FirstItem+e.Items
			},
			func(e record.IndexEntry, c shardtable.Row) bool { return item >= e.FirstItem+c.FirstItem })
	})
}

// LocateLine returns the shard that holds a line of an input, counted from 1;
// NotFound if it is not planned (yet). The line may be a blank one.
func (x *Index) LocateLine(ctx context.Context, run identity.RunID, input int, line uint64) (Location, error) {
	n := line - 1
	return x.inPlan(ctx, run, func(p record.Plan) (Location, error) {
		first := 0
		for _, r := range p.Ranges[:min(input, len(p.Ranges))] {
			first += r.Count
		}
		last := first
		if input < len(p.Ranges) {
			last = min(p.Merged, first+p.Ranges[input].Count)
		}
		return x.locate(ctx, run, first, last,
			func(e record.IndexEntry) (after, within bool) { return n >= e.FirstLine, n < e.FirstLine+e.Lines },
			func(e record.IndexEntry, c shardtable.Row) bool { return n >= e.FirstLine+c.FirstLine })
	})
}

// inPlan looks in the plan as it is remembered and, if what is wanted is not
// there, as it is by now.
func (x *Index) inPlan(ctx context.Context, run identity.RunID, look func(record.Plan) (Location, error)) (Location, error) {
	p, err := x.Plan(ctx, run, 0, 1)
	if err != nil {
		return Location{}, err
	}
	l, err := look(p)
	if !fault.Is(err, fault.NotFound) {
		return l, err
	}
	newer, planErr := x.Plan(ctx, run, 0, p.Merged+1)
	if planErr != nil { // it has not come further
		return l, err
	}
	return look(newer)
}

// locate finds, among the ranges from lo to hi, the one that the wanted thing
// is within, and there the last shard that does not begin behind it.
func (x *Index) locate(ctx context.Context, run identity.RunID, lo, hi int,
	of func(record.IndexEntry) (after, within bool), begins func(record.IndexEntry, shardtable.Row) bool) (Location, error) {
	var failed error
	k := lo + sort.Search(max(0, hi-lo), func(k int) bool {
		e, err := x.Entry(ctx, run, lo+k)
		if err != nil {
			failed = err
			return true
		}
		_, within := of(e)
		return within
	})
	if failed != nil {
		return Location{}, failed
	}
	if k >= hi {
		return Location{}, fault.New(fault.NotFound, "it is not planned")
	}
	e, err := x.Entry(ctx, run, k)
	if err != nil {
		return Location{}, err
	}
	if after, _ := of(e); !after || e.Shards == 0 {
		return Location{}, fault.New(fault.NotFound, "it is in no shard")
	}
	at := func(row int) (shardtable.Row, error) {
		rows, err := x.Rows(ctx, run, e, row, 1)
		if err != nil {
			return shardtable.Row{}, err
		}
		return rows[0], nil
	}
	row := sort.Search(e.Shards, func(row int) bool {
		c, err := at(row)
		if err != nil {
			failed = err
			return true
		}
		return !begins(e, c)
	}) - 1
	if failed != nil || row < 0 {
		return Location{}, fault.Wrap(failed, "look at the cut table of range %d", k)
	}
	c, err := at(row)
	return Location{Entry: e, Row: row, Cut: c}, err
}
