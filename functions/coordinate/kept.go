package coordinate

import (
	"context"

	"rollout/shared/core/interval"
	"rollout/shared/core/run"
)

// Bounds of how far a step of a child run looks: so many shards that it must send, and
// so many in all.
const (
	lookTouched = 1024
	lookShards  = 1 << 14
)

// observeKept finds which of the next shards a child run keeps from its parent.
func (c *Coordinator) observeKept(ctx context.Context, l *loaded, w *run.Observed) error {
	if l.manifest.Parent == nil {
		return nil
	}
	n, touched := l.state.NextShard, 0
	for ; n < min(w.Shards, l.state.NextShard+lookShards) && touched < lookTouched; n++ {
		in, err := c.index.Inherited(ctx, l.state.Run, n)
		if err != nil {
			return err
		}
		switch last := len(w.Kept) - 1; {
		case in.Touched:
			touched++
		case last >= 0 && w.Kept[last].Hi == n:
			w.Kept[last].Hi++
		default:
			w.Kept = append(w.Kept, interval.Range{Lo: n, Hi: n + 1})
		}
	}
	w.KeptUntil = n
	return nil
}

// goOn returns the event with which a child run looks at its next shards, if the step
// to next has passed some: they may be kept as well, or the last ones.
func goOn(l *loaded, next run.State) []run.Event {
	if l.manifest.Parent == nil || next.NextShard == l.state.NextShard {
		return nil
	}
	return []run.Event{{Kind: run.Reevaluate, MessageIndex: fromSelf}}
}
