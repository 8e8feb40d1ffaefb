package input

import (
	"cmp"
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
	Row   int // in the range's shard table
	Cut   shardtable.Row
}

// Shard returns the shard's number in the run.
func (l Location) Shard() int { return l.Entry.FirstShard + l.Row }

// FirstItem returns the index of the shard's first item in the run.
func (l Location) FirstItem() uint64 { return l.Entry.FirstItem + l.Cut.FirstItem }

// LocateItem returns the shard of an item. It returns NotFound if the item is not
// planned, or not planned yet.
func (x *Index) LocateItem(ctx context.Context, run identity.RunID, item uint64) (Location, error) {
	return x.inPlan(ctx, run, func(p record.Plan) (Location, error) {
		return x.locate(ctx, run, 0, p.Merged, target{
			compare: func(e record.IndexEntry) int { return compareToRange(item, e.FirstItem, e.Items) },
			reached: func(e record.IndexEntry, c shardtable.Row) bool { return item >= e.FirstItem+c.FirstItem },
		})
	})
}

// LocateLine returns the shard that holds a line of an input, or of what was
// appended. Lines are counted
// from 1, blank ones included. It returns NotFound if the line is not planned, or
// not planned yet.
func (x *Index) LocateLine(ctx context.Context, run identity.RunID, input int, line uint64) (Location, error) {
	n := line - 1
	return x.inPlan(ctx, run, func(p record.Plan) (Location, error) {
		return x.locate(ctx, run, 0, p.Merged, target{
			compare: func(e record.IndexEntry) int {
				if e.Input != input {
					return cmp.Compare(input, e.Input)
				}
				return compareToRange(n, e.FirstLine, e.Lines)
			},
			reached: func(e record.IndexEntry, c shardtable.Row) bool { return n >= e.FirstLine+c.FirstLine },
		})
	})
}

// target is the item or line that locate searches for.
type target struct {
	compare func(record.IndexEntry) int                  // see compareToRange
	reached func(record.IndexEntry, shardtable.Row) bool // whether the shard begins at or before the target
}

// compareToRange returns -1 if n is before the count numbers from first on, 0 if it
// is one of them, and 1 if it is behind them.
func compareToRange(n, first, count uint64) int {
	switch {
	case n < first:
		return -1
	case n < first+count:
		return 0
	}
	return 1
}

// inPlan searches with the cached plan and, if that finds nothing, with the plan of
// now.
func (x *Index) inPlan(ctx context.Context, run identity.RunID,
	search func(record.Plan) (Location, error)) (Location, error) {
	p, err := x.Plan(ctx, run, 0, 1)
	if err != nil {
		return Location{}, err
	}
	l, err := search(p)
	if !fault.Is(err, fault.NotFound) {
		return l, err
	}
	newer, planErr := x.Plan(ctx, run, 0, p.Merged+1)
	if planErr != nil { // planning made no progress
		return l, err
	}
	return search(newer)
}

// locate searches the ranges from lo to hi for the one that contains the target,
// and there the last shard that begins at or before it.
func (x *Index) locate(ctx context.Context, run identity.RunID, lo, hi int, of target) (Location, error) {
	var failed error
	k := lo + sort.Search(max(0, hi-lo), func(k int) bool {
		e, err := x.Entry(ctx, run, lo+k)
		if err != nil {
			failed = err
			return true
		}
		return of.compare(e) <= 0
	})
	if failed != nil {
		return Location{}, failed
	}
	if k >= hi {
		return Location{}, fault.New(fault.NotFound, "not planned")
	}
	e, err := x.Entry(ctx, run, k)
	if err != nil {
		return Location{}, err
	}
	if of.compare(e) < 0 || e.Shards == 0 {
		return Location{}, fault.New(fault.NotFound, "not in a shard")
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
		return !of.reached(e, c)
	}) - 1
	if failed != nil || row < 0 {
		return Location{}, fault.Wrap(failed, "search the shard table of range %d", k)
	}
	c, err := at(row)
	return Location{Entry: e, Row: row, Cut: c}, err
}
