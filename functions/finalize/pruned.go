package finalize

import (
	"context"

	"rollout/shared/core/shard"
	"rollout/shared/fault"
	"rollout/shared/input"
	"rollout/shared/record"
	"rollout/shared/shardtable"
)

// whyUnsent returns why the items of a shard that was never sent have no answer: its
// variant is pruned, or the run ended first. A shard without either is Unavailable.
func (w *writer) whyUnsent(ctx context.Context, n int) (cause, error) {
	if len(w.state.Pruned) > 0 {
		_, _, cut, err := w.cut(ctx, n)
		if err != nil {
			return cause{}, err
		}
		if w.state.Pruned.Has(cut.Variant, n) {
			return w.whyPruned(ctx, cut.Variant)
		}
	}
	if !w.neverSent(n) {
		return cause{}, fault.New(fault.Unavailable, "it is %s, although its run is over", shard.Pending)
	}
	return cause{w.state.Reason.Class(), w.message()}, nil
}

// whyPruned reads why the variant was pruned from its record.
func (w *writer) whyPruned(ctx context.Context, variant uint32) (cause, error) {
	if why, ok := w.pruned[variant]; ok {
		return why, nil
	}
	var p record.PrunedVariant
	if err := input.ReadJSON(ctx, w.Blobs, record.PrunedKey(w.manifest.Run, variant), &p); err != nil {
		return cause{}, err
	}
	if w.pruned == nil {
		w.pruned = map[uint32]cause{}
	}
	w.pruned[variant] = cause{fault.Pruned, "its variant was pruned: " + p.Why}
	return w.pruned[variant], nil
}

// cut returns the range of a shard, its row in the shard table, and what is there.
func (w *writer) cut(ctx context.Context, n int) (record.IndexEntry, int, shardtable.Row, error) {
	e, row, err := w.index.FindShard(ctx, w.manifest.Run, n)
	if err != nil {
		return e, row, shardtable.Row{}, err
	}
	cuts, err := w.index.Rows(ctx, w.manifest.Run, e, row, 1)
	if err != nil {
		return e, row, shardtable.Row{}, err
	}
	return e, row, cuts[0], nil
}
