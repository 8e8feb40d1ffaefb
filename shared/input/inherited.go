package input

import (
	"context"

	"rollout/shared/core/identity"
	"rollout/shared/fault"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// planOwner returns the run whose plan objects the run uses: itself, or the oldest
// ancestor of a child.
func (x *Index) planOwner(ctx context.Context, run identity.RunID) (identity.RunID, error) {
	p, err := x.Plan(ctx, run, 0, 0)
	if err != nil || p.Inherited == nil {
		return run, err
	}
	return p.Inherited.Plan, nil
}

// keptPage is a page of what a child has from its parent.
type keptPage struct {
	run  identity.RunID
	page int
}

// Inherited returns what a child run has of a shard from its parent. NotFound means
// that the child is not planned yet, or its plan has expired.
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
		first := k.page * pageRows
		n := int64(min(pageRows, p.Shards-first))
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
	return shardtable.Inherited{}, fault.New(fault.NotFound, "run %s has no shard %d", run, shard)
}
