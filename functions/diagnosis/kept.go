package diagnosis

import (
	"context"

	"rollout/functions/status"
)

// kept reports on an item of a shard of which a child run asks nothing again: its row
// is in the parent's files, and in the child's when that has ended. It returns false
// for other items.
func (x *Explainer) kept(ctx context.Context, p status.Progress, t *ItemReport, shard int) (bool, error) {
	if p.Manifest.Parent == nil {
		return false, nil
	}
	in, err := x.index.Inherited(ctx, p.Manifest.Run, shard)
	if err != nil || in.Touched {
		return false, err
	}
	t.say("the run keeps its row from run %s, which it retries", p.Manifest.Parent.Run)
	if !p.State.Phase.Ended() {
		p.Manifest.Run = p.Manifest.Parent.Run
	}
	return true, x.findInOutputs(ctx, p, t)
}
