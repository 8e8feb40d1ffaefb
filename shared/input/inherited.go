package input

import (
	"context"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// rangeOwner returns the run to which the plan objects of a range of the run belong: itself, or an
// ancestor of a child.
func (x *Index) rangeOwner(ctx context.Context, of rangeOf) (identity.RunID, error) {
	p, err := x.Plan(ctx, of.run, 0, 0)
	return p.RangeOwner(of.run, of.rng), err
}

// keptPage is a page of what a child has from its parent.
type keptPage struct {
	run  identity.RunID
	page int
}

// Inherited returns what a child run has of a shard from its parent: no row of a shard that the
// child added. NotFound means that the child is not planned yet, or its plan has expired.
func (x *Index) Inherited(ctx context.Context, run identity.RunID, shard int) (shardtable.Inherited, error) {
	k := keptPage{run, shard / pageRows}
	x.mu.Lock()
	rows, ok := x.kept[k]
	x.mu.Unlock()
	if !ok {
		p, err := x.Plan(ctx, run, shard+1, 0)
		if err != nil {
			return shardtable.Inherited{}, err
		}
		first, inherited := k.page*pageRows, p.InheritedShards()
		if shard >= inherited {
			return shardtable.Inherited{Touched: true}, nil
		}
		n := int64(min(pageRows, inherited-first))
		b, err := ReadPart(ctx, x.blobs, record.InheritedKey(run), int64(first)*shardtable.InheritedSize,
			n*shardtable.InheritedSize)
		if err != nil {
			return shardtable.Inherited{}, err
		}
		if rows, err = shardtable.ParseInherited(b); err != nil {
			return shardtable.Inherited{}, fault.Wrap(err, "read %s", record.InheritedKey(run))
		}
		x.mu.Lock()
		put(x.kept, k, rows, maxPages)
		x.mu.Unlock()
	}
	if at := shard - k.page*pageRows; at >= 0 && at < len(rows) {
		return rows[at], nil
	}
	p, err := x.Plan(ctx, run, shard+1, 0)
	if err == nil && shard < p.InheritedShards() {
		err = fault.New(fault.NotFound, "run %s has no shard %d", run, shard)
	}
	return shardtable.Inherited{Touched: true}, err
}
