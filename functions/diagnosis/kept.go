package diagnosis

import (
	"context"

	"rollout/functions/status"
	"rollout/shared/fault"
)

// kept reports on an item of a shard of which a child run asks nothing again: its row
// is in the parent's files, and in the child's when that has ended. It returns false
// for other items.
func (x *Explainer) kept(ctx context.Context, p status.Progress, t *ItemReport, shard int) (bool, error) {
	if p.Manifest.Parent == nil {
		return false, nil
	}
	in, err := x.index.Inherited(ctx, p.Manifest.Run, shard)
	if fault.Is(err, fault.NotFound) && p.State.Phase.Ended() { // cleaned up: the run's files have the row
		return true, x.findInOutputs(ctx, p, t)
	}
	if err != nil || in.Touched {
		return false, err
	}
	t.say("the run keeps its row from run %s, which it retries", p.Manifest.Parent.Run)
	if !p.State.Phase.Ended() {
		p.Manifest.Run = p.Manifest.Parent.Run
	}
	if err := x.findInOutputs(ctx, p, t); err != nil || t.Row != nil || p.State.Phase.Ended() {
		return true, err
	}
	t.markUnprocessed(fault.Storage, "the files of run "+string(p.Manifest.Parent.Run)+", which had its row, are gone")
	return true, nil
}
